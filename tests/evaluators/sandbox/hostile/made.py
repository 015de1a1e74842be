"""Sources that are easier made than written down."""

from hostile import preludes

VALID = preludes.complete("\n\ndef run_packing():\n    return packing()\n")


def big_legal() -> str:
    return VALID + "".join(f"# {i} {'legal ' * 15}\n" for i in range(9_000))


def null_bytes() -> str:
    return VALID.replace("def run_packing", "x = '\0'\n\n\ndef run_packing")


def byte_order_mark() -> str:
    return "\ufeff" + VALID


def mark_against_cookie() -> str:
    return "\ufeff# -*- coding: latin-1 -*-\n" + VALID


def unknown_coding() -> str:
    return "# -*- coding: no-such-coding -*-\n" + VALID


def latin_coding() -> str:
    return "# -*- coding: latin-1 -*-\nNAME = 'Größe'\n" + VALID


def smuggled_by_coding() -> str:
    hidden = "+AAo-run_packing +AD0- lambda: (None, None, 100.0)+AAo-"
    return f"# -*- coding: utf-7 -*-\n{VALID}# {hidden}\n"


def two_megabytes() -> str:
    return VALID + "# large\n" * (1 << 18)


def many_brackets() -> str:
    return VALID + "x = " + "(" * 500_000 + ")" * 500_000 + "\n"


def many_operators() -> str:
    return VALID + "x = " + "-" * 100_000 + "1\n"


def many_attributes() -> str:
    return VALID + "x = VALUE" + ".a()" * 100_000 + "\n"


def long_ladder() -> str:
    ladder = "".join(f"elif x == {i}:\n    y = {i}\n" for i in range(5_000))
    return f"x = 0\nif x == -1:\n    y = 0\n{ladder}\n{VALID}"


def nested_functions() -> str:
    return VALID + "".join(f"{' ' * i}def f():\n" for i in range(200)) + f"{' ' * 200}pass\n"


def many_constants() -> str:
    return VALID + f"X = {[float(i) for i in range(50_000)]}\n"


def lone_surrogates() -> str:
    return f"# \ud800\nNAME = '\udfff'\n{VALID}"


def other_line_ends() -> str:
    return "\x0c\r\n" + VALID.replace("\n", "\r\n")


def tabs_and_spaces() -> str:
    return VALID + "if True:\n        x = 1\n\ty = 1\n"


def empty() -> str:
    return ""


def only_a_comment() -> str:
    return "# TODO: pack circles"


def unfinished_text() -> str:
    return VALID + 'x = """never ends'


def prose() -> str:
    return f"Here is the improved program:\n\n```python\n{VALID}\n```\nIt packs circles.\n"


def long_line() -> str:
    return VALID + f"X = [{'1, ' * 80_000}]\n"


def fails_on_a_long_line() -> str:
    return f"def run_packing():\n    x = [{'1, ' * 80_000}][10**9]\n"
