"""Deterministic simulation: the real use cases over simulated ports, one history for each seed.

``make simulate`` runs 10,000 seeds; ``python -m simulation --help`` shows how to replay one. The
application and domain code is unchanged; the ports are the adapters of ``adapters.memory``, which
pass the same contract suites as the real ones.

How it works
    ``scheduler.py``: processes and threads are greenlets, time is simulated. ``world.py``: every
    call of a port goes through ``World.call``: the seed picks who runs next, then the fault plan
    decides, then the call takes effect, then the checkers that watch it look at the state.
    ``ports.py``: one generic proxy for all ports. ``threads.py``: fetches, background work and
    heartbeats in simulated time. ``faults.py``: the kinds of faults, and the plan of a seed: a list
    of (what, at which call, how long). ``runner.py``: runs, shrinks and sums up. ``exhaustive.py``:
    every single fault of a small history.

    With ``--real``, each port is a twin (``twins.py``): the memory adapter and its real one, over
    a Postgres and a folder of the history's own (``real_stores.py``), answer every call. What
    differs is a violation. A memory adapter in a scenario needs an entry in ``_ADAPTERS``.

    A process that crashes is unwound by ``Killed``; its proxies are dead, so nothing in its
    ``finally`` blocks has an effect. Open transactions are rolled back, and it is started again
    after a while. An error that is no ``TileManagerError`` is a violation.

To add a scenario
    Write a subclass of ``Scenario`` in ``scenarios/`` and name it in ``scenarios/__init__.py``.
    ``build`` creates the shared state (memory adapters), checkers (``world.watch``), operator
    actions (``world.actions``, each runs in a process of its own), what a power loss takes
    (``world.disks``) and processes (``world.start_process(Process(name=…, main=…))``). ``main``
    gets its process and wires the use cases as the container does, with ``self.connect(process,
    SPEC, adapter)`` around each adapter. ``Process(is_awaited=False)`` is for those that never end,
    such as a worker. Sizes and settings come from ``self.chance``, never from ``random``.

    A ``PortSpec`` says what kind of port it is (disk, database, provider, local), which methods
    touch nothing outside (``quiet``), which lock a database holds meanwhile (``lock``), and which
    returned objects are ports as well (``parts``). Context managers are transactions: their end is
    the call ``<port>.<method>.end``, where a commit may fail or its answer may be lost.

To add a checker
    Write a subclass of ``Checker`` in ``checkers/`` with the numbers of its ``invariants``.
    ``handlers`` maps names of calls to methods that are called after them; ``after_power_loss`` and
    ``at_end`` see the whole state. Do not ask the rules of the product what is right: a checker
    that calls the mutated function finds nothing.

To add a fault
    Add a ``FaultKind`` with its ``TARGETS`` and, if it lasts, its time; if it is an error, build it
    in ``Fault.build_error``, otherwise do it in ``World._apply_before``. ``FaultPlan([Fault(…)])``
    with ``run_plan`` runs a plan of your own, such as one fault at each call of a history.

To plant a bug
    Add a ``Bug`` to ``bugs.py`` or ``queue_bugs.py``: a function, a text in it and what to put in
    its place. ``python -m simulation --bugs all`` tells after how many seeds each is found. One
    that is not found shows a checker or a fault that is missing; make the scenario try it, for all
    bugs of its kind. If a second guard makes the bug harmless, plant another one.
"""
