"""Exports of usage are read as their providers write them, or refused with the line."""

from decimal import Decimal

import pytest

from costada.models.provider_bills import BilledUsage, moment, read_bill
from costada.values.usage import Usage

NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC

OPENROUTER = """\
generation_id,created_at,cost_total,tokens_prompt,tokens_completion,model_permaslug,app_name
gen-2,2026-01-01 12:00:01.500,0.00125,300,40,openai/gpt-5-mini-2025-08-07,search
gen-1,2026-01-01 12:00:00,0,7,0,openai/gpt-5-mini-2025-08-07,search
"""

OPENAI = f"""\
start_time,end_time,project_id,num_model_requests,model,input_tokens,output_tokens,input_cached_tokens
{NOON:.0f},{NOON + 60:.0f},proj,2,gpt-5-mini,1000,50,600
"""

ANTHROPIC = """\
usage_date_utc,model_version,api_key,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,\
usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens
2026-01-01,claude-haiku-4-5,search,100,20,30,400,9
"""


def bill_of(text, folder):
    file = folder / "bill.csv"
    file.write_text(text, encoding="utf-8")
    return read_bill(file)


def test_openrouter_names_each_request_with_its_dollars(tmp_path):
    bill = bill_of(OPENROUTER, tmp_path)
    model = "openai/gpt-5-mini-2025-08-07"
    assert bill.provider == "OpenRouter"
    assert bill.names_requests
    assert bill.lines == [
        BilledUsage("gen-1", model, NOON, NOON, Usage(7, 0), Decimal(0)),
        BilledUsage("gen-2", model, NOON + 1.5, NOON + 1.5, Usage(300, 40), Decimal("0.00125")),
    ]


def test_openai_and_anthropic_say_what_a_model_used_in_a_span(tmp_path):
    openai = bill_of(OPENAI, tmp_path)
    assert not openai.names_requests
    (line,) = openai.lines
    assert line == BilledUsage("", "gpt-5-mini", NOON, NOON + 60, Usage(1000, 50, 600))
    (line,) = bill_of("\ufeff" + ANTHROPIC, tmp_path).lines
    used = Usage(550, 9, cached_tokens=400, cache_write_tokens=50, cache_write_1h_tokens=30)
    midnight = NOON - 43_200
    assert line == BilledUsage("", "claude-haiku-4-5", midnight, midnight + 86_400, used)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"has the columns \(none\)"),
        ("a,b\n1,2\n", "has the columns a, b; expected those of an export"),
        (OPENROUTER.splitlines()[0], "has no line of usage"),
        (OPENROUTER.replace("gen-1", "gen-2"), "names the request 'gen-2' twice"),
        (OPENROUTER.replace("gen-1", ""), "line 3: generation_id: is empty"),
        (OPENROUTER.replace(",7,", ",-7,"), "line 3: tokens_prompt: got '-7'"),
        (OPENROUTER.replace("0.00125", "much"), "line 2: cost_total: got 'much'"),
        (OPENROUTER.replace("2026-01-01 12:00:00,", "noon,"), "line 3: created_at: got 'noon'"),
        (OPENROUTER.replace(",7,", ",1e999999999,"), "line 3: tokens_prompt: got '1e999999999'"),
        (OPENROUTER.replace("0.00125", "1e-31"), "line 2: cost_total: got '1e-31'"),
        (OPENROUTER.replace(",search\n", "\n", 1), "line 2: got another number of values"),
        (ANTHROPIC.replace(",9\n", ",9,9\n"), "line 2: got another number of values"),
        (OPENAI.replace(f"{NOON:.0f}", "9" * 400), "line 2: start_time: got '999"),
        (OPENAI.replace(",600", ",6000"), "line 2: cached_tokens: got 6000, expected at most"),
        ("PK\x00\x03", "has the columns"),
    ],
)
def test_what_is_no_export_is_refused(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        bill_of(text, tmp_path)


def test_times_are_in_utc_unless_they_say_otherwise():
    assert moment("2026-01-01T12:00", "--since") == NOON
    assert moment("2026-01-01T14:00+02:00", "--since") == NOON
    assert moment(f"{NOON:.0f}", "--since") == NOON
    with pytest.raises(ValueError, match="--since: got 'yesterday', expected a time in UTC"):
        moment("yesterday", "--since")
