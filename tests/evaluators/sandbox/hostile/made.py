"""Sources that are easier made than written down."""

from hostile import preludes

VALID = preludes.complete("\n\ndef run_packing():\n    return packing()\n")
LADDER = "".join(f"elif x == {i}:\n    y = {i}\n" for i in range(5_000))
NESTED = "".join(f"{' ' * i}def f():\n" for i in range(200)) + f"{' ' * 200}pass\n"
SMUGGLED = "+AAo-run_packing +AD0- lambda: (None, None, 100.0)+AAo-"
SOURCES = {
    "big_legal": VALID + "".join(f"# {i} {'legal ' * 15}\n" for i in range(9_000)),
    "null_bytes": VALID.replace("def run_packing", "x = '\0'\n\n\ndef run_packing"),
    "byte_order_mark": "\ufeff" + VALID,
    "mark_against_cookie": "\ufeff# -*- coding: latin-1 -*-\n" + VALID,
    "unknown_coding": "# -*- coding: no-such-coding -*-\n" + VALID,
    "latin_coding": "# -*- coding: latin-1 -*-\nNAME = 'Größe'\n" + VALID,
    "smuggled_by_coding": f"# -*- coding: utf-7 -*-\n{VALID}# {SMUGGLED}\n",
    "two_megabytes": VALID + "# large\n" * (1 << 18),
    "many_brackets": VALID + "x = " + "(" * 500_000 + ")" * 500_000 + "\n",
    "many_operators": VALID + "x = " + "-" * 100_000 + "1\n",
    "many_attributes": VALID + "x = VALUE" + ".a()" * 100_000 + "\n",
    "long_ladder": f"x = 0\nif x == -1:\n    y = 0\n{LADDER}\n{VALID}",
    "nested_functions": VALID + NESTED,
    "many_constants": VALID + f"X = {[float(i) for i in range(50_000)]}\n",
    "lone_surrogates": f"# \ud800\nNAME = '\udfff'\n{VALID}",
    "other_line_ends": "\x0c\r\n" + VALID.replace("\n", "\r\n"),
    "tabs_and_spaces": VALID + "if True:\n        x = 1\n\ty = 1\n",
    "empty": "",
    "only_a_comment": "# TODO: pack circles",
    "unfinished_text": VALID + 'x = """never ends',
    "prose": f"Here is the improved program:\n\n```python\n{VALID}\n```\nIt packs circles.\n",
    "long_line": VALID + f"X = [{'1, ' * 80_000}]\n",
    "fails_on_a_long_line": f"def run_packing():\n    x = [{'1, ' * 80_000}][10**9]\n",
}
