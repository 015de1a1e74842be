from schedule.assign import assign
from schedule.order import order


def plan(seconds, machines):
    return assign(seconds, order(seconds), machines)
