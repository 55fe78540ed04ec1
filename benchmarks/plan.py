"""What is measured: jobs in blocks. The jobs of a block are compared, so they run next to each other in every round."""

from dataclasses import dataclass

ROUNDS = 7
QUICK_ROUNDS = 2


@dataclass(frozen=True)
class Job:
    """A function of this package, how many steps it makes, and in how many of the rounds."""

    work: str
    label: str
    steps: int
    quick_steps: int
    rounds: int = ROUNDS
    is_postgres: bool = False
    fill: str = ""
    """A function that prepares the job's folder once, with as many steps; "" for an empty folder in every round."""
    is_copied: bool = False
    """The prepared folder is used up: every round gets a copy."""

    def is_in(self, number: int, rounds: int) -> bool:
        """Spread over the rounds of a whole bench; in a quick one the slow peers run once."""
        count = self.rounds if rounds == ROUNDS else min(rounds, self.rounds // 2 or 1)
        return number * count // rounds != (number - 1) * count // rounds


OURS = "**holdfast** `run_flow`, `ctx.step`"
RAW = {"one_run": "raw sqlite3, WAL, FULL", "many_sqlite": "raw sqlite3, WAL, FULL", "many_postgres": "raw psycopg"}
"""The limit that the first job of a block measures by turns with itself: one insert per synced commit."""

ONE_RUN = [
    Job("paired.one_run_sqlite", OURS, 1000, 300),
    Job("peer_langgraph.one_run_sqlite", "LangGraph `SqliteSaver`, `sync`", 1000, 200, 5),
    Job("peer_dbos.one_run_sqlite", "DBOS, SQLite (its default)", 1000, 200, 3),
    Job("peer_purpose.save_events", "purpose-agent SQLite `save_event`", 1000, 200, 5),
]
MANY_SQLITE = [
    Job("paired.many_runs_sqlite", OURS, 3200, 3200),
    Job("paired.many_runs_sqlite_closing", "**holdfast**, steps that close over their arguments", 3200, 3200, 5),
    Job("peer_langgraph.many_runs_sqlite", "LangGraph `AsyncSqliteSaver`, `sync`", 3200, 320, 2),
    Job("peer_langgraph.many_runs_sqlite_async", "LangGraph `AsyncSqliteSaver`, `async` ¹", 3200, 320, 2),
    Job("peer_dbos.many_runs_sqlite", "DBOS, SQLite", 3200, 320, 2),
]
MANY_POSTGRES = [
    Job("paired.many_runs_postgres", OURS, 3200, 3200, is_postgres=True),
    Job("peer_langgraph.many_runs_postgres", "LangGraph `AsyncPostgresSaver`, `sync`", 3200, 320, 2, True),
    Job("peer_langgraph.many_runs_postgres_async", "LangGraph `AsyncPostgresSaver`, `async` ¹", 3200, 320, 2, True),
    Job("peer_dbos.many_runs_postgres", "DBOS, Postgres", 3200, 320, 2, True),
]
ONE_RUN_POSTGRES = [
    Job("ours_flow.one_run_postgres", OURS, 1000, 300, 5, True),
]
REPLAY = [
    Job("ours_flow.replay", "**holdfast**", 10_000, 10_000, fill="ours_flow.fill_replay", is_copied=True),
    Job(
        "ours_flow.typed_replay",
        "**holdfast**, results of a dataclass",
        10_000,
        10_000,
        5,
        fill="ours_flow.fill_typed_replay",
        is_copied=True,
    ),
    Job("peer_dbos.replay", "DBOS, SQLite", 1000, 200, 3, fill="peer_dbos.fill_replay", is_copied=True),
]
LIST = [
    Job("ours_store.list_all", "**holdfast** `SQLiteCheckpointer`", 100_000, 100_000, fill="ours_store.fill_list"),
    Job(
        "peer_purpose.list_all", "purpose-agent `SQLiteCheckpointer`", 100_000, 20_000, 3, fill="peer_purpose.fill_list"
    ),
]
APPEND = [
    Job("ours_store.append_to_both", "**holdfast** `save_event`", 1_000_000, 100_000, fill="ours_store.fill_append")
]
SIZE = [
    Job("ours_flow.messages", "**holdfast**", 1000, 200, 1),
    Job("peer_langgraph.messages", "LangGraph `SqliteSaver`", 1000, 200, 1),
]
MANY_PHASES = [Job("many_phases.resume_and_list", "**holdfast**", 10_000, 10_000, 3, fill="many_phases.fill")]
MANY_PROCESSES = [
    Job("many_processes.steps_by_processes", "**holdfast**", 200, 50, 3, True),
    Job("many_processes.steps_on_slow_disk", "**holdfast**", 200, 50, 3),
    Job("many_processes.time_until_seen", "**holdfast**", 200, 50, 3, True),
    Job("many_processes.look_for_due", "**holdfast**", 1, 1, 3, True),
]
FLEET_BEGIN = [
    Job("fleet.due_until_begun", "**holdfast** `worker`", 100, 20, 3, True),
    Job("peer_dbos_queue.due_until_begun", "DBOS queue, its defaults", 20, 5, 3, True),
]
FLEET_FLOWS = [
    Job("fleet.begun_and_ended", "**holdfast**, 2 workers", 1000, 200, 3, True),
    Job("peer_dbos_queue.begun_and_ended", "DBOS queue, its defaults, 2 processes", 1000, 200, 3, True),
]
FLEET_DEATH = [Job("fleet.killed_until_elsewhere", "**holdfast**", 5, 2, 2, True)]
CARRIED = [Job("carried_files.change_and_restore", "**holdfast**", 200, 20, 3, True)]
WARM_RUN = [Job("warm_run.runs_in_warm_server", "**holdfast**", 20, 3, 3)]
IMPORT = [Job("imports.start", "**holdfast**", 10, 5)]
NEW_PROCESS = [
    Job("new_process.replay", "**holdfast**", 10_000, 10_000, fill="ours_flow.fill_replay", is_copied=True),
    Job("new_process.first_run", "**holdfast**", 1, 1),
]
PARKED = [Job("parked_flows.rest", "**holdfast**", 10_000, 1000, 1)]

BLOCKS = {
    "one_run": ONE_RUN,
    "one_run_postgres": ONE_RUN_POSTGRES,
    "many_sqlite": MANY_SQLITE,
    "many_postgres": MANY_POSTGRES,
    "replay": REPLAY,
    "list": LIST,
    "append": APPEND,
    "size": SIZE,
    "many_phases": MANY_PHASES,
    "many_processes": MANY_PROCESSES,
    "fleet_begin": FLEET_BEGIN,
    "fleet_flows": FLEET_FLOWS,
    "fleet_death": FLEET_DEATH,
    "carried": CARRIED,
    "warm_run": WARM_RUN,
    "import": IMPORT,
    "new_process": NEW_PROCESS,
    "parked": PARKED,
}
COUNTED = [
    Job("ours_flow.one_run_sqlite", OURS, 0, 0),
    Job("raw.sqlite_commits", "raw", 0, 0),
    *ONE_RUN[1:],
    *ONE_RUN_POSTGRES,
]
"""Jobs whose syncs per step are counted; how many steps they make, `syncs` decides."""
