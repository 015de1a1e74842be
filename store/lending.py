"""What an account can lend to another one, or spend."""

from decimal import Decimal

from costada.store.accounts import Account


class OverBudget(ValueError):
    """What was asked for is more than an account has left; nothing was written."""


def wanted_budget(found: Account | None, wanted: Decimal | None, above: Account) -> Decimal:
    """Return the budget that a child should have: never less than it has."""
    if found is None:
        return above.remaining if wanted is None else wanted
    return found.budget if wanted is None else max(found.budget, wanted)


def granted_budget(found: Account | None, target: Decimal, above: Account) -> Decimal:
    """Return the budget that a child gets, the target or as much of it as can be drawn."""
    held, spent = (found.held, found.spent) if found else (Decimal(0), Decimal(0))
    needed, left = max(target, spent) - held, above.remaining
    is_hard = above.policy == "hard"
    if found and needed <= 0:
        return target
    if found and not found.is_closed and not is_hard and left <= 0:
        return found.budget
    check_fits(needed if is_hard else Decimal(0), above, f"budget: got {target:f}")
    return target if needed <= left else held + left


def check_fits(least: Decimal, account: Account, what: str) -> None:
    """Raise `OverBudget` where less is left than is needed, or nothing at all."""
    left = account.remaining
    if least > left or left <= 0:
        raise OverBudget(
            f"{what}, but {account.name!r} has ${max(left, Decimal(0)):f} left of"
            f" ${account.budget:f}"
        )
