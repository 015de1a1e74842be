"""Calls of a run and the charges computed from them."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal

from costada.store.database import Database
from costada.store.rows import CallRow, Charge


class LedgerTable:
    """The account of a run: one row per model request, one charge per iteration."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def put_call(self, run_id: str, call: CallRow) -> None:
        """Append a call; calls of one iteration, role and attempt are numbered from 1."""
        facts = asdict(call)
        for field in ("iteration", "role", "attempt", "cost", "prompt", "answer"):
            del facts[field]
        texts = self._db.put_text(call.prompt), self._db.put_text(call.answer)
        key = (run_id, call.iteration, call.role, call.attempt)
        self._db.write(
            "INSERT INTO call SELECT ?, ?, ?, ?, 1 + COALESCE(MAX(n), 0), ?, ?, ?, ? FROM call"
            " WHERE run_id = ? AND iteration = ? AND role = ? AND attempt = ?",
            (*key, f"{call.cost:f}", *texts, json.dumps(facts), *key),
        )

    def has_answer(self, run_id: str) -> bool:
        """Return whether any request of a run was ever answered."""
        return bool(
            self._db.rows(
                "SELECT 1 FROM call WHERE run_id = ? AND answer_hash != '' LIMIT 1", (run_id,)
            )
        )

    def calls(self, run_id: str, *, with_texts: bool = True) -> Iterator[CallRow]:
        """Yield every call of a run in the order of iterations.

        Without texts, prompts and answers are empty and need not be read.
        """
        text = self._db.text if with_texts else lambda _: ""
        for iteration, role, attempt, cost, prompt, answer, facts in self._db.rows(
            "SELECT iteration, role, attempt, cost, prompt_hash, answer_hash, facts FROM call"
            " WHERE run_id = ? ORDER BY iteration, rowid",
            (run_id,),
        ):
            yield CallRow(
                iteration=iteration,
                role=role,
                attempt=attempt,
                cost=Decimal(cost),
                prompt=text(prompt),
                answer=text(answer),
                **json.loads(facts),
            )

    def charge(self, run_id: str, iteration: int) -> Charge:
        """Charge an iteration with all its calls and return the account after it.

        The money spent is the previous iteration's plus the sum of this one's calls, so charging
        twice changes nothing and the work does not grow with the run.
        """
        with self._db.transaction():
            found = self._db.rows(
                "SELECT role, cost FROM call WHERE run_id = ? AND iteration = ?",
                (run_id, iteration),
            )
            cost = sum((Decimal(row[1]) for row in found), Decimal(0))
            spent = self.spent(run_id, iteration - 1) + cost
            self._db.write(
                "INSERT OR REPLACE INTO charge VALUES (?, ?, ?, ?)",
                (run_id, iteration, f"{cost:f}", f"{spent:f}"),
            )
        return Charge(cost, spent, sum(row[0] == "guide" for row in found))

    def spent(self, run_id: str, iteration: int) -> Decimal:
        """Return the dollars spent up to and including an iteration (C_t, Sec. 3.1)."""
        found = self._db.rows(
            "SELECT spent FROM charge WHERE run_id = ? AND iteration <= ?"
            " ORDER BY iteration DESC LIMIT 1",
            (run_id, iteration),
        )
        return Decimal(found[0][0]) if found else Decimal(0)
