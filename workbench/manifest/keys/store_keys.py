"""The keys of a data store: FfDL's, for every type that it knew, and those of our own types."""

from __future__ import annotations

from typing import Final

from workbench.manifest.keys.containers import Key, KeyTable
from workbench.manifest.keys.kinds import NameChoice, OneOf, Text, is_map
from workbench.manifest.keys.scalars import TruthValue, WholeNumber

OBJECT_STORES: Final = (
    "mount_cos",
    "s3_datastore",
    "swift_datastore",
    "softlayer_objectstore",
    "bluemix_objectstore",
)
"""FfDL's stores that need an address and credentials."""

OTHER_STORES: Final = ("gcs", "azure", "sftp", "webdav", "http")
"""Types that rclone reaches in addition to FfDL's own."""

BOUND_STORES: Final = ("mount_volume", "host_path")
FOLDER_STORES: Final = (*BOUND_STORES, "volume")

JOB_STORE: Final = "job"
"""The results of another job, which this one then comes after."""

STORE_TYPES: Final = (*OBJECT_STORES, *OTHER_STORES, *FOLDER_STORES, JOB_STORE, "inmem")

CONNECTION_TYPES: Final = {**{name: name for name in STORE_TYPES}, "host_mount": "mount_volume"}
"""What FfDL's older manifests repeat as ``connection.type``, and the store type that it stands for."""

_CONTAINER = Key(
    "container",
    Text("the name of a bucket or a folder"),
    "Name of the bucket or folder. `none` means none.",
    ours=False,
    example="tf_training_data",
    spellings=("bucket",),
)

TRAINING_DATA: Final = KeyTable(
    _CONTAINER, what="training_data", instead="write training_data: with container: NAME below it"
)

TRAINING_RESULTS: Final = KeyTable(
    _CONTAINER, what="training_results", instead="write training_results: with container: NAME below it"
)

CONNECTION: Final = KeyTable(
    Key(
        "type", Text(), "Repeats the store's type, as older manifests do.", ours=False, example="s3_datastore"
    ),
    Key(
        "auth_url",
        Text("the store's address"),
        "Address of the store. Object stores need it, and `sftp`, `webdav` and `http`. `${NAME}` in it is a"
        " variable of your environment.",
        ours=False,
        example="https://s3.example.com",
    ),
    Key(
        "user_name",
        Text("a user or access key id"),
        "User or access key id; `azure`: the account. Object stores need it. `${NAME}` is a secret as below.",
        ours=False,
        example="me",
    ),
    Key(
        "password",
        Text("a password or secret key", length_max=10_000),
        "Password or secret key; `gcs`: a service account's key as JSON. Object stores need it. `${NAME}` is a"
        " secret of your environment, `secrets.toml` or keyring. It is kept out of every record and log.",
        ours=False,
        example="secret",
    ),
    Key(
        "token",
        Text("a token", length_max=10_000),
        "A token instead of a password, or with it: S3's session token, Azure's SAS address, WebDAV's bearer"
        " token. It is kept out of every record and log.",
        example="${TOKEN}",
    ),
    Key(
        "key_file",
        Text("the path of a key"),
        "`sftp`: a private key's file, on the backend.",
        default="what an agent holds",
        example="~/.ssh/id_ed25519",
    ),
    Key(
        "known_hosts",
        Text("the path of a file"),
        "`sftp`: the file, on the backend, with the keys of known machines.",
        default="~/.ssh/known_hosts",
        example="/etc/ssh/ssh_known_hosts",
    ),
    Key(
        "vendor",
        Text("a server's kind"),
        "`webdav`: whose server it is, as rclone names it.",
        default="rclone",
        example="nextcloud",
    ),
    Key("region", Text(), "Region of the store.", default="us-standard", ours=False, example="eu-de"),
    Key("domain_name", Text(), "Swift's domain.", ours=False, example="default"),
    Key("project_id", Text(), "Swift's project.", ours=False, example="4711"),
    Key(
        "path",
        Text("an absolute path"),
        "`mount_volume`, `host_path`: the folder of the host that holds the containers.",
        ours=False,
        example="/cosdata",
    ),
    Key("name", Text(), "`mount_volume`, `volume`: the volume's name.", ours=False, example="host-mount"),
    what="a connection",
    elsewhere={
        "access_key_id": "write user_name:",
        "secret_access_key": "write password:",
        "endpoint_url": "write auth_url:",
        "userId": "write user_name:",
        "username": "write user_name:",
        "url": "write auth_url:",
        "container": "it belongs under training_data: or training_results:",
    },
)

_AT_END: Final = KeyTable(
    Key(
        "keep_last",
        WholeNumber(0, 1_000_000),
        "How many of the newest of each job.",
        default="1",
        example="0",
    ),
    Key(
        "keep_best",
        WholeNumber(0, 1_000_000),
        "How many of each job, for the best values of `metric`.",
        default="0",
        example="1",
    ),
    Key(
        "keep_best_of_search",
        WholeNumber(0, 1_000_000),
        "How many of all trials of a search together, for the best values of `metric`.",
        default="0",
        example="3",
    ),
    what="checkpoints.at_end",
)

CHECKPOINTS: Final = OneOf(
    "own, shared or a map",
    (
        NameChoice(("own", "shared")),
        KeyTable(
            Key(
                "shared",
                TruthValue(),
                "Whether all jobs of the result container share one folder, FfDL's `_wml_checkpoints`.",
                default="false",
                example="true",
            ),
            Key(
                "keep_last",
                WholeNumber(0, 1_000_000),
                "How many of the newest checkpoints that training code reports are kept.",
                default="all, or 1 with `keep_best`",
                example="3",
            ),
            Key(
                "keep_best",
                WholeNumber(0, 1_000_000),
                "How many more are kept, for the best values of `metric`.",
                default="0",
                example="1",
            ),
            Key("metric", Text(), "Which of a checkpoint's metrics says how good it is.", example="val_loss"),
            Key(
                "smaller_is_better",
                TruthValue(),
                "Whether a smaller value of `metric` is better.",
                default="true, or what the search's `goal` says of its metric",
                example="false",
            ),
            Key(
                "at_end",
                _AT_END,
                "What is kept of these once the job, and the search that it is a trial of, has completed.",
                default="the same",
                example="{keep_last: 0, keep_best_of_search: 3}",
            ),
            what="checkpoints",
        ),
    ),
    is_map,
)
"""``checkpoints: shared``, or a map that says more."""

DATA_STORE: Final = KeyTable(
    Key(
        "id",
        Text("a name of your own"),
        "A label of your own.",
        default="`store-1`, ...",
        ours=False,
        example="sl-internal-os",
    ),
    Key(
        "type",
        NameChoice(STORE_TYPES),
        "What kind of store it is. `mount_cos` and `s3_datastore` speak S3, the Swift types OpenStack's,"
        " `gcs`, `azure`, `sftp`, `webdav` and `http` (which is only read) what they are called,"
        " `mount_volume` and `host_path` are folders of the host, `volume` a named volume, `job` the results of the"
        " job that `training_data.container` names, `inmem` FfDL's own test double.",
        default="`connection.type`",
        ours=False,
        example="mount_cos",
    ),
    Key(
        "training_data",
        TRAINING_DATA,
        "What is read.",
        default="none",
        ours=False,
        spellings=("trainingdata",),
    ),
    Key(
        "training_results",
        TRAINING_RESULTS,
        "Where results go.",
        default="they stay with the job",
        ours=False,
        spellings=("trainingresults",),
    ),
    Key("connection", CONNECTION, "How the store is reached.", default="none", ours=False),
    Key(
        "read_only",
        TruthValue(),
        "Whether the learner may not write to the data.",
        default="true for a folder of a host, else false",
        example="false",
    ),
    Key(
        "path",
        Text(),
        "A folder inside `training_data.container` that stands for the whole.",
        default="the whole",
        example="2024/train",
    ),
    Key(
        "mount",
        TruthValue(),
        "Whether the container is mounted (FUSE) instead of copied. Folders and volumes are never copied.",
        default="false",
        example="true",
    ),
    what="a data store",
    elsewhere={
        "bucket": "it belongs under training_data: as container:",
        "container": "it belongs under training_data: or training_results:",
        "auth_url": "it belongs under connection:",
        "user_name": "it belongs under connection:",
        "password": "it belongs under connection:",
        "name": "write id:",
        "data_store_id": "write id:",
    },
)
