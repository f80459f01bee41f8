from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.disks import fill, small_disk
from tests.support.stored_jobs import add_job
from workbench.errors import CannotWrite, ConfigError, FabricError, InputMissing, TryAgain
from workbench.paths import Home
from workbench.store.db import identity, setup
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.schema import FIRST, LATEST
from workbench.store.queries.jobs import list_jobs, revision


def test_an_empty_home_is_made_private_with_an_identity(home: Home) -> None:
    with Store.open(home) as store:
        assert list_jobs(store) == []

    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert len(home_uuid(home)) == 36
    assert sorted(entry.name for entry in home.path.iterdir()) == ["binding.json", "fabric.db", "home.json"]


def test_the_identity_stays_when_the_home_is_opened_again(home: Home) -> None:
    first = home_uuid(home)

    assert home_uuid(home) == first


def test_several_processes_that_open_a_new_home_at_once_agree(home: Home) -> None:
    code = (
        "import sys; from pathlib import Path; from workbench.paths import Home;"
        "from workbench.store.db.database import Store, home_uuid;"
        "home = Home(Path(sys.argv[1])); store = Store.open(home);"
        "mode = store.rows('pragma journal_mode')[0];"
        "print(home_uuid(home), store.schema_version(), mode)"
    )
    several = [
        subprocess.Popen([sys.executable, "-c", code, str(home.path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outputs = [process.communicate()[0] for process in several]

    assert [process.returncode for process in several] == [0, 0, 0, 0]
    assert outputs == [f"{home_uuid(home)} {LATEST} ('wal',)\n"] * 4


def test_listing_jobs_does_not_load_the_library_for_migrations(home: Home) -> None:
    code = (
        "import sys; from pathlib import Path; from workbench.paths import Home;"
        "from workbench.store.db.database import Store; from workbench.store.queries.jobs import list_jobs;"
        "list_jobs(Store.open(Home(Path(sys.argv[1]))));"
        "print([name for name in ('sqlite_utils', 'pydantic', 'click', 'subprocess') if name in sys.modules])"
    )
    for _ in range(2):
        assert subprocess.check_output([sys.executable, "-c", code, str(home.path)]) == b"[]\n"


def test_a_newer_database_is_refused_with_both_versions(home: Home) -> None:
    with Store.open(home) as store:
        store.execute(f"PRAGMA user_version = {LATEST + 5}")

    with pytest.raises(ConfigError, match=rf"schema {LATEST + 5}, this one knows {LATEST}") as caught:
        Store.open(home, migrate=True)
    assert caught.value.exit_code == 78
    assert "upgrade" in caught.value.hint


def test_a_newer_home_is_refused(home: Home) -> None:
    Store.open(home).close()
    home.identity.write_text(home.identity.read_text().replace('"format": 1', '"format": 9'))

    with pytest.raises(ConfigError, match="format 9, this one knows 1"):
        Store.open(home)


def test_an_older_database_is_upgraded_only_by_the_controller(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    from workbench.store.db import migrations

    with Store.open(home) as store:
        add_job(store, "kept")
    steps = Migrations("fabric")
    steps(name="m001_first")(migrations.m001_first)

    @steps()
    def m002_colour(database: Database) -> None:
        database.execute("ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey'")

    @steps()
    def m003_shape(database: Database) -> None:
        database.execute("ALTER TABLE jobs ADD COLUMN shape TEXT NOT NULL DEFAULT 'round'")

    monkeypatch.setattr(migrations, "STEPS", steps)
    monkeypatch.setattr(setup, "LATEST", 3)
    with pytest.raises(ConfigError, match="schema 1, this one needs 3"):
        Store.open(home)
    with Store.open(home, migrate=True) as store:
        assert store.schema_version() == 3
        assert store.rows("SELECT name, colour, shape FROM jobs") == [("kept", "grey", "round")]
    with Store.open(home) as store:
        assert store.schema_version() == 3


def test_a_step_that_fails_leaves_what_was_there(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    from workbench.store.db import migrations

    Store.open(home).close()
    steps = Migrations("fabric")
    steps(name="m001_first")(migrations.m001_first)

    @steps()
    def m002_half(database: Database) -> None:
        database.execute("ALTER TABLE jobs ADD COLUMN half TEXT")
        database.execute("ALTER TABLE missing ADD COLUMN other TEXT")

    monkeypatch.setattr(migrations, "STEPS", steps)
    monkeypatch.setattr(setup, "LATEST", 2)
    with pytest.raises(FabricError, match="no such table"):
        Store.open(home, migrate=True)

    with sqlite3.connect(home.database) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert "half" not in [row[1] for row in connection.execute("PRAGMA table_info(jobs)")]
    connection.close()


def test_the_first_migration_makes_the_schema_that_a_new_database_gets(home: Home, tmp_path: Path) -> None:
    from sqlite_utils import Database

    from workbench.store.db.migrations import STEPS

    def shape(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        return sorted((kind, name, sql or "") for kind, name, sql in rows if "sqlite" not in name)

    migrated = sqlite3.connect(tmp_path / "migrated.db")
    database = Database(migrated)
    STEPS.apply(database)
    with Store.open(home) as store:
        assert shape(store.connection) == shape(migrated)
        assert STEPS.pending(Database(store.connection)) == []
    migrated.close()


def test_the_released_schema_is_never_edited() -> None:
    import hashlib

    # A change of this text must be a new step in migrations.py instead.
    assert hashlib.sha256(FIRST.encode()).hexdigest()[:16] == "1d629d98d9003374"


def test_a_file_that_is_no_database_is_named_with_the_way_out(home: Home) -> None:
    identity.make_home(home)
    home.database.write_bytes(b"this is not SQLite" * 400)

    with pytest.raises(InputMissing, match="damaged") as caught:
        Store.open(home)
    assert "fabric doctor --rebuild" in caught.value.hint


def test_damage_found_later_is_reported_the_same_way(home: Home) -> None:
    with Store.open(home) as store:
        for number in range(50):
            add_job(store, f"job-{number}")
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with home.database.open("r+b") as stream:
        stream.seek(4096)
        stream.write(os.urandom(home.database.stat().st_size - 4096))

    with pytest.raises(InputMissing, match="damaged"), Store.open(home) as store:
        list_jobs(store)


def test_someone_elses_database_is_left_alone(home: Home) -> None:
    identity.make_home(home)
    connection = sqlite3.connect(home.database)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()

    with pytest.raises(InputMissing, match="not a store of fabric's"):
        Store.open(home)


def test_a_locked_store_is_waited_for_and_then_says_so(home: Home) -> None:
    with Store.open(home) as holder, Store.open(home, wait_seconds=0.05) as other, holder.atomic():
        with pytest.raises(TryAgain, match="locked by another process") as caught, other.atomic():
            pass
        assert caught.value.exit_code == 75
        assert list_jobs(other) == []  # readers are not kept waiting


def test_a_home_below_a_file_cannot_be_made(clean_environment: Path) -> None:
    (clean_environment / "file").write_text("")

    with pytest.raises(CannotWrite, match="a part of that path is a file") as caught:
        Store.open(Home(clean_environment / "file" / "home"))
    assert caught.value.exit_code == 73
    assert "FABRIC_HOME" in caught.value.hint


def test_a_home_on_a_read_only_disk_cannot_be_made(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", options=",ro") as disk, pytest.raises(CannotWrite, match="read-only"):
        Store.open(Home(disk / "home"))


def test_a_home_whose_disk_became_read_only_is_reported_in_a_sentence(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        home = Home(disk / "home")
        with Store.open(home) as store:
            add_job(store)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

        with (
            pytest.raises(CannotWrite, match="file system is read-only") as caught,
            Store.open(home) as store,
        ):
            add_job(store)
        assert "FABRIC_HOME" in caught.value.hint


def test_a_full_disk_keeps_the_store_whole_and_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        home = Home(disk / "home")
        with Store.open(home) as store:
            kept = add_job(store, "kept")
            before = home.job(kept.id).events.read_bytes()
            fill(disk)
            with pytest.raises(CannotWrite, match="disk is full"):
                for _ in range(200):
                    add_job(store, "too many", recorded={"filler": "x" * 20_000})
            (disk / "filling").unlink()
            names = [row.name for row in list_jobs(store)]
            assert names[-1] == "kept"
            assert len(list(home.jobs.iterdir())) == len(names)  # nothing half-made is left
            add_job(store, "afterwards")
            assert store.rows("PRAGMA integrity_check") == [("ok",)]
            assert home.job(kept.id).events.read_bytes() == before


def test_blocks_within_blocks_are_undone_by_themselves(home: Home) -> None:
    with Store.open(home) as store:
        with store.atomic():
            store.execute("INSERT INTO ui_state VALUES ('outer', '1')")
            with pytest.raises(ValueError, match="inner"), store.atomic():
                store.execute("INSERT INTO ui_state VALUES ('inner', '1')")
                raise ValueError("inner")
            with store.atomic():
                store.execute("INSERT INTO ui_state VALUES ('second', '1')")

        assert store.rows("SELECT key FROM ui_state ORDER BY key") == [("outer",), ("second",)]


def test_a_failed_block_undoes_all_and_the_store_goes_on(home: Home) -> None:
    with Store.open(home) as store:
        before = revision(store)
        with pytest.raises(ValueError, match="outer"), store.atomic():
            row = add_job(store)
            raise ValueError("outer")

        assert revision(store) == before
        assert not home.job(row.id).path.exists()
        assert add_job(store, "next").seq == 1


def test_a_table_that_a_failed_block_had_made_is_missing_again(home: Home) -> None:
    with Store.open(home) as store:
        with pytest.raises(RuntimeError), store.atomic():
            store.execute("CREATE TABLE later (id TEXT)")
            assert store.has_table("later")
            raise RuntimeError
        was_undone = not store.has_table("later")
        with store.atomic():
            store.execute("CREATE TABLE later (id TEXT)")

        assert was_undone
        assert store.has_table("later")


def test_another_connections_change_is_noticed(home: Home) -> None:
    with Store.open(home) as reader, Store.open(home) as writer:
        before = reader.data_version()
        assert reader.data_version() == before

        add_job(writer)

        assert reader.data_version() != before


def test_a_reader_says_restart_me_after_an_upgrade(home: Home) -> None:
    with Store.open(home) as reader, Store.open(home) as newer:
        newer.execute(f"PRAGMA user_version = {LATEST + 1}")

        with pytest.raises(ConfigError, match="another version") as caught:
            reader.data_version()
        assert "restart" in caught.value.hint


def test_a_network_file_system_gets_no_write_ahead_log_and_one_machine(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_FILESYSTEM", "nfs4")
    with Store.open(home) as store:
        add_job(store)
        assert store.rows("PRAGMA journal_mode") == [("delete",)]
        store.bind_controller()
        store.bind_controller()
        monkeypatch.setattr(setup, "machine_id", lambda: "another")
        with pytest.raises(ConfigError, match="runs on another machine"):
            store.bind_controller()
        store.bind_controller(force=True)


def test_a_home_that_moved_from_the_network_gets_its_log_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_FILESYSTEM", "cifs")
    Store.open(home).close()
    monkeypatch.delenv("FABRIC_FILESYSTEM")

    with Store.open(home) as store:
        assert store.rows("PRAGMA journal_mode") == [("wal",)]
        store.bind_controller()
