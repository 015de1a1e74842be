"""The state that travels along the edges: small, typed, plain values only.

Programs, prompts and calls live in the run's store; the state carries their ids and hashes, so a
checkpoint stays the same size however long the run is.
"""

from typing import Annotated

from langgraph.channels import EphemeralValue
from typing_extensions import TypedDict

from costada.controller.method import Record


class StepRecord(TypedDict):
    """The iteration under way (t), filled in from node to node.

    `frontier`, `action` and `intensity` are what the controller chose (k_t, a_t, I_t). `attempt`
    counts the attempts made. `parent` and `candidate` are candidate ids, `prompt`, `program`,
    `changes` and `failure` hashes of stored texts, `prompt_data` of the JSON of what the prompt was
    made of; an empty string means none. `score` (f_t) and
    `objective` are `None` until something was evaluated. `cost` is the step cost in dollars (c_t);
    `guide_calls` says how many of its calls were guide calls. `inspirations` are candidate ids, and
    `label` is the search strategy's word for the parent, where a strategy chose it. `failed` holds
    failure and program of every attempt that failed. `is_credited` tells that the step has been
    credited, `is_out_of_money` that its last attempt was not made, as a hard budget could not pay
    for it. Where the generating model works with tools, `requests` counts its requests in the step,
    and `is_cut_short` tells that its cap or the budget allows the step no further one.
    """

    frontier: int
    action: str
    intensity: float
    attempt: int
    parent: str
    prompt: str
    prompt_data: str
    program: str
    changes: str
    candidate: str
    failure: str
    score: float | None
    objective: float | None
    cost: float
    guide_calls: int
    inspirations: list[str]
    label: str
    failed: list[list[str]]
    is_credited: bool
    is_out_of_money: bool
    requests: int
    is_cut_short: bool


class CreditRecord(TypedDict):
    """What the step earned (delta_t, g_t, d_t, u_t, r_t, Sec. 4.2 and 4.3)."""

    local_gain: float
    global_gain: float
    cost_divisor: float
    utility: float
    allocation_reward: float


class SearchInput(TypedDict, total=False):
    """What a caller may hand in: the seed of the run's randomness (default: the settings' seed).

    A seed holds for the run that this input starts, not for a later one on the same thread.
    """

    seed: Annotated[int, EphemeralValue]


class SearchOutput(TypedDict, total=False):
    """What a run returns.

    `best_score` is normalised (higher is better), `best_objective` is in the benchmark's units.
    `spent` and `remaining` are dollars; `remaining` is 0 when the budget was crossed.
    `stop_reason` is `"budget"`, `"iterations"` or `"failures"`, and empty while the run goes on;
    after `"failures"`, `last_failure` says what was wrong with the last attempt.
    """

    best_program: str
    best_score: float
    best_objective: float | None
    best_metrics: dict[str, float]
    spent: float
    remaining: float
    iterations: int
    stop_reason: str
    last_failure: str


class SearchState(SearchInput, SearchOutput, total=False):
    """Everything a step needs to go on, and nothing that grows with the run.

    `run_id` names the run's rows in the store, `run_seed` starts its randomness, `holdout_key` is
    the secret behind second looks at programs. `iteration` is the step under way (t), 0 before the
    first. `newest_checkpoint` is the highest id of a checkpoint that the run has seen, absent where
    the saver goes by the order of writing. `archive_seq` counts changes of the archives: nodes read
    the archives as of it, so rows written after the last checkpoint are overwritten, never seen.
    `extended_budget` is the budget in dollars that the caller granted when the graph's was used up,
    0 until then; `granted_budget` is what the run has drawn from a purse, else absent or `None`.
    `refused_answer` says what was wrong with the last grant. `failures` counts the
    attempts in a row, up to the last finished step, that yielded no usable program.
    `best` is the incumbent's candidate id. `labels` are hashes of the texts behind the labels of
    a search strategy, where the method has one. `seconds` is what each node has taken since the
    last step ended, `trace` where the run's OpenTelemetry trace began, if somebody listened.
    """

    run_id: str
    run_seed: int
    holdout_key: str
    iteration: int
    newest_checkpoint: str
    archive_seq: int
    extended_budget: float
    granted_budget: float | None
    refused_answer: str
    failures: int
    best: str
    labels: dict[str, str]
    seconds: dict[str, float]
    trace: dict[str, str]
    controller: Record
    step: StepRecord
    credit: CreditRecord
