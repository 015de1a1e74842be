from decimal import Decimal

import pytest
from fakes import ScriptedModel, hashed_answer
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

from costada.models.metering import MeteredCall
from costada.models.offline import OfflineModel
from costada.models.prices import price_book
from costada.values.prices import Price


def call_to(model: str, **changes) -> MeteredCall:
    fields = {
        "model": model,
        "provider": None,
        "input_tokens": 1_000_000,
        "output_tokens": 100_000,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "is_cache_hit": False,
        "is_estimated": False,
        "answer": "",
        "finish_reason": None,
        "provider_id": None,
        "duration": 0.0,
        "error": None,
    }
    return MeteredCall(**{**fields, **changes})


def charged(book, call) -> Decimal:
    return book.quote(call).cost(call.input_tokens, call.output_tokens, call.cached_tokens)


def openai_model(name: str) -> ChatOpenAI:
    return ChatOpenAI(model=name, api_key="unused")


def test_a_given_price_overrides_the_packaged_one():
    book = price_book([(openai_model("gpt-5.4"), Price(3, 20))], {})
    assert charged(book, call_to("gpt-5.4")) == Decimal(5)
    assert book.quote(call_to("gpt-5.4")).source == "given"


def test_a_known_model_has_its_packaged_price():
    book = price_book([(openai_model("gpt-5.4"), None)], {})
    call = call_to("gpt-5.4", input_tokens=10_000, output_tokens=1_000)
    assert charged(book, call) == Decimal("0.040")
    assert book.quote(call).source.startswith("genai-prices")


def test_what_the_provider_says_it_charged_comes_before_the_packaged_price():
    book = price_book([(openai_model("gpt-5.4"), None)], {})
    call = call_to("gpt-5.4", reported_cost=Decimal("0.0123"))
    assert charged(book, call) == Decimal("0.0123")
    assert book.quote(call).source == "provider"


def test_a_given_price_comes_before_what_the_provider_says():
    book = price_book([(openai_model("gpt-5.4"), Price(3, 20))], {})
    assert charged(book, call_to("gpt-5.4", reported_cost=Decimal("0.0123"))) == Decimal(5)


def test_a_fallback_is_priced_as_the_model_that_answered():
    model = openai_model("gpt-5.4").with_fallbacks([openai_model("gpt-5.4-mini")])
    book = price_book([(model, Price(3, 20))], {"gpt-5.4-mini": Price(1, 1)})
    assert charged(book, call_to("gpt-5.4")) == Decimal(5)
    assert charged(book, call_to("gpt-5.4-mini")) == Decimal("1.1")


def test_a_fallback_without_a_price_is_refused_by_name():
    model = openai_model("gpt-5.4").with_fallbacks([openai_model("my-own")])
    with pytest.raises(ValueError, match="model 'my-own' has no known price"):
        price_book([(model, Price(3, 20))], {})


def test_a_guide_of_the_same_name_shares_the_price():
    model = openai_model("my-own")
    book = price_book([(model, Price(1, 1)), (model, None)], {})
    assert charged(book, call_to("my-own")) == Decimal("1.1")


def test_the_offline_model_is_priced_as_glm_5_in_the_paper():
    book = price_book([(OfflineModel(), None)], {})
    assert charged(book, call_to("offline")) == Decimal("0.792")
    assert book.quote(call_to("offline")).source == "the paper's GLM-5 price"


def test_the_answer_of_a_local_cache_is_free():
    book = price_book([(openai_model("gpt-5.4"), None)], {})
    call = call_to("gpt-5.4", is_cache_hit=True)
    assert charged(book, call) == 0
    assert book.quote(call).source == "local cache"


def test_a_model_that_nobody_priced_cannot_be_charged():
    book = price_book([(openai_model("gpt-5.4"), None)], {})
    with pytest.raises(ValueError, match="model 'other' has no known price"):
        book.quote(call_to("other"))


def test_a_price_is_that_of_the_constructors_name_and_a_bound_one_has_its_own():
    bound = openai_model("my-own").bind(model="dear")
    with pytest.raises(ValueError, match="that of 'my-own' for a model that is asked as 'dear'"):
        price_book([(bound, Price(1, 1))], {})
    book = price_book([(bound, Price(1, 1))], {"dear": Price(9, 9)})
    assert charged(book, call_to("dear")) == Decimal("9.9")
    assert charged(book, call_to("my-own")) == Decimal("1.1")


def test_a_name_with_two_prices_is_refused():
    models = [(openai_model("my-own"), Price(1, 1)), (openai_model("my-own"), Price(9, 9))]
    with pytest.raises(ValueError, match="model 'my-own' has two prices; expected one"):
        price_book(models, {})


def test_what_holds_no_chat_model_is_refused():
    with pytest.raises(ValueError, match="expected a LangChain chat model"):
        price_book([(RunnableLambda(str), Price(1, 1))], {})


def test_cached_tokens_have_their_own_price():
    model = ScriptedModel(answer=hashed_answer)
    book = price_book([(model, Price(1, 1, "0.1"))], {})
    call = call_to("scripted", cached_tokens=500_000, output_tokens=0)
    assert charged(book, call) == Decimal("0.55")


def test_a_list_price_holds_for_the_providers_own_address_only_and_there_are_two_ways_out():
    model = ChatOpenAI(
        model="gpt-5.4", api_key="unused", base_url="https://me:secret@other.example/v1?key=secret"
    )
    with pytest.raises(ValueError) as refused:
        price_book([(model, None)], {})
    told = str(refused.value)
    assert told.startswith(
        "model 'gpt-5.4' has no known price at other.example: its list price holds for the"
        " provider's own address only"
    )
    assert "Settings(price=Price(input, output)) or --price-in and --price-out" in told
    assert "call the provider itself: without base_url, OPENAI_API_BASE and OPENAI_BASE_URL" in told
    assert "secret" not in told
    assert price_book([(model, Price(1, 2))], {}).quotes["gpt-5.4"].source == "given"


def test_a_name_that_no_provider_lists_is_only_asked_a_price_for():
    model = ChatOpenAI(model="mine", api_key="unused", base_url="http://localhost:1/v1")
    with pytest.raises(ValueError, match="model 'mine' has no known price; give one"):
        price_book([(model, None)], {})
