"""The protocol as a small state machine: every order of events is searched, the real functions are walked along it.

**What is modelled.** One task; one or two dispatcher processes, started again under a new id when one has ended; the
rows of the database; each call of a dispatcher's loop, outcomes, session and judge as the transaction that it is on the
server. What goes wrong is a fault, and there is a budget of so many in all: a process is killed; a client gives up on a
call, which then is a `Stray` that may arrive at any later time, or never (a request that was lost, and a reply that
was lost after the commit, are the two ends of that); the database refuses a claim of this very task; a dispatcher that
lives is suspected; it is signaled to drain; the server restarts. Apart from these a client may cancel the task once,
and a standby that lacks the last commits may take over. Time is not measured: that half the grace period passes is an
event, and so is it that the time comes for which a task waits. A reconnect is a beat: that the lock was free meanwhile
allows a judge to suspect, and here a judge may suspect anybody.

**What a task's kind says** is part of where a search begins: how many attempts there are, and whether one that crashed
is followed by another. Where there may be several, each body may return or raise, and what raised asks for another
attempt, also after the last one: that there is none is for the database to say.

**How transactions are cut.** A transaction that locks what it decides on, for itself alone and until its commit, can be
taken for one moment: whoever comes meanwhile waits, or skips the row and comes again. So settle, finish, cancel,
condemn, recover, leave and beat are one step each. A claim shares its lock, for key share, and is two steps therefore:
it has taken the task, and it is committed. In between, whoever wants its dispatcher's row for update waits. Where a
lock is taken away nobody waits, and what is read is older than the claim; a lock that is waited for within the
statement that reads comes to the same, since its snapshot is as old. A retry is one step; but its reply may
come later than what others, and the dispatcher's own loop, do meanwhile.

**What is not modelled.** Several tasks, batches, priorities, pauses, a kind that is published anew, what bodies do, and
how long anything lasts. No proof of death is searched, only what a wrong one does. That a judge ends its suspect's
sessions first is left out, too: nothing that is searched depends on it, it only makes recovery quick. A release that
arrives late is not told apart from one in time: it names nobody.

    states.py    what a state is: rows, processes, strays, what is left of the budgets
    guards.py    each guard of the protocol by name; a model may be built without some
    server.py    the SQL functions, on states
    lanes.py     what a dispatcher's process does
    steps.py     every step out of a state: of the processes, the judges, the strays, the world
    promises.py  what no step may break; knows of no guard
    likeness.py  which states are alike, so that one of them is searched
    search.py    every reachable state, breadth first, so that a trace is a shortest one; who can still come to an end
    removals.py  what breaks without each guard, within which bounds
    routes.py    a shortest way to every kind of step
    real.py      the steps as calls of the real functions, and the rows beside the model's
    walk.py      walks along such ways, and random ones

**How to read a trace.** A line is a step: who (dispatchers are A, B, … in the order of their start), what it did
(`late` marks a stray), what the database answered; and then, where it changed, the state: the task and its holder with
the claim's number, each dispatcher's row and process, the claim that is open, the strays.
"""
