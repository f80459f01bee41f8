"""The prose of ``docs/manifest.md``, between the tables that are made of the keys."""

from __future__ import annotations

from typing import Final

OPENING: Final = """\
<!-- Made by `python -m workbench.manifest.publish.docs --write`; a test says when it is not current. -->

# The manifest

A manifest is a YAML file that describes one job: what to run, how many times at once, and what it needs.
The format is FfDL's with keys of our own on top, so FfDL's manifests work as they are. The smallest one:

```yaml
name: hello
framework:
  command: python train.py
```

`fabric init` writes a commented one, `fabric validate FILE...` checks it and names every fault at once,
`fabric plan FILE` shows what would be started, `fabric schema` prints the JSON schema for your editor,
and `fabric run FILE` runs it. `fabric run -- python train.py` writes a manifest by itself and keeps it
with the job.
"""

KEYS: Final = """\
Keys marked + are ours; the others are FfDL's, with FfDL's meaning. A key that is empty (`cpus:`) is as
if it were not there. An unknown key is a warning that names the nearest one. The keys that say what a
learner needs may stand under `resources:` as well.
"""

UNITS: Final = """
## Sizes and durations

A size is a number and a unit; upper and lower case, blanks between them and a fraction are all the same
to it.

| written | bytes | why |
|---|---|---|
| `1Gb`, `1GB`, `1G`, `1 gb` | 1,048,576,000 | 1000 megabytes of 1024 x 1024 bytes: what FfDL gave |
| `500MB`, `500M` | 524,288,000 | the same |
| `1.5Gb` | 1,572,864,000 | FfDL silently made 512 MB of it |
| `1TB` | 1,048,576,000,000 | FfDL silently made 512 MB of it |
| `1GiB`, `1Gi` | 1,073,741,824 | exact |
| `512MiB`, `512Mi` | 536,870,912 | exact |
| `1TiB`, `1Ti` | 1,099,511,627,776 | exact |
| `1024` | refused | it could be bytes, megabytes or gigabytes; the fault names two readings |

A duration is seconds (`90`) or numbers with units: `90s`, `45m`, `1h30m`, `2d`, `1 week`.
"""

YAML: Final = """
## How YAML is read

By YAML 1.2: `1e-5` is a number; `yes`, `no`, `on` and `off` are texts; `010` is ten and `0o10` eight;
`1:30` and `2024-01-01` are texts. Where a text belongs any scalar serves, exactly as it is written:
`version: 1.10` stays `1.10`. JSON is YAML, too.

A key that is given twice is a fault. Anchors, aliases and `<<` work, as far as the document with all
aliases written out stays below a few megabytes; tags and a second document are faults. A manifest is
UTF-8 and at most 1 MiB long.
"""

COMMANDS: Final = """
## Commands

`framework.command` and `setup` are shell text. In plain, single-quoted and folded (`>`) text every
newline is a blank, so this is one command, although YAML keeps its newlines:

```yaml
  command: >
    python train.py --epochs 10
      --data ${DATA_DIR}/train
```

In a literal block (`|`), and where `\\n` is written in double quotes, newlines stay: that is a script.
"""

PARAMS: Final = """
## Hyper-parameters

```yaml
params:
  lr: 1e-3
  optimizer: adam
framework:
  command: python train.py --lr ${params.lr} --optimizer ${params.optimizer}
```

`${params.lr}` may stand in every value outside `params`, and is replaced by the text of the parameter; a
value that is nothing else (`gpus: ${params.gpus}`) is read as what that text is. The learner sees
`FABRIC_PARAM_LR` and `FABRIC_PARAM_OPTIMIZER`. `--set params.lr=0.01` changes one.
"""

ORIGINS: Final = """
## Where values come from

From the strongest to the weakest: flags (`--gpus 1`), `--set`, `FABRIC_*` variables, the manifest,
`config.toml`, the default. Maps are joined key by key, everything else is replaced. `fabric show
--origin JOB` says where each value came from.

`--set PATH=VALUE` sets any key: maps by name, lists by index (one past the end appends), the value read
as YAML:

```
--set params.lr=0.01 --set memory=2GB --set data_stores=[] --set env.OMP_NUM_THREADS=4
--set data_stores.0.connection.auth_url=https://s3.example.com --set seed=null
```

`null` takes a key away. A path that is no key is a fault. Where a text belongs and the value is no YAML
text of its own (`--set framework.command='echo "a: b" # c'`) it is taken as it is.

Variables:
"""

CONFIGURATION: Final = """
### `config.toml`

Lies in `~/.config/fabric/` (or where `XDG_CONFIG_HOME` or `FABRIC_CONFIG` says) and holds named places,
and defaults for manifest keys and for `detach`, `on_interrupt`, `no_prefix`, `quiet` and `timeout` of
`fabric run`:

```toml
[defaults]
backend = "gpubox"
max_restarts = 1
env = { OMP_NUM_THREADS = "4" }

[backends.gpubox]
type = "ssh"
address = "ssh://me@gpubox"
```
"""

DIFFERENCES: Final = """
## Where FfDL was silently wrong

| written | FfDL | here |
|---|---|---|
| `memory: 1.5Gb`, `8G`, `4Gi`, `1TB` | 512 MB | what it says |
| `memory: 1024`, or no memory | 512 MB | refused; no limit here and over SSH |
| `gpus: 0.5` | no GPU | refused |
| `learners: -1` | not checked | refused |
| `cpus` missing | 5 | nothing is reserved |
| no `data_stores`, or several | crash, error 400 | none, or all of them |
| an unknown framework | a job that can never start | refused with the list |
| a typing error in a key | ignored | a warning that names the nearest key |
| `evaluation_metrics.type` mistyped | taken as an image's name | refused with the list |
| a group without `meta` | crash | allowed |
| `line_lookahead` missing | 0 | 4 |
| a literal block as command | its lines run together | a script |
| `in:` | ignored | honoured |
"""

UNBUILT: Final = """
## Valid, but not built yet

These validate and are shown by `fabric plan`; `fabric run` refuses them in a sentence with the way out:
a `launcher` other than `none`, `horovod` and `pytorchmpi` with several learners or GPUs, `ports` of a process,
and a `priority`. A data store with `mount: true` cannot be in a pod.
"""

FAULTS: Final = """
## Faults and warnings

A fault names file, line, column and key, what was found and what would be right, and makes the exit code
65 (66 when the file is not there); `fabric validate` and `fabric run` name all of them at once. A
warning leaves the manifest usable: unknown keys, placeholders (`<your key>`, `auth_url: test`), keys
that have no effect together, secrets in `env`. Files in the formats of Determined, Watson Machine
Learning, Kubernetes and Docker Compose are recognised and named.

Passwords and tokens that stand in a manifest (`data_stores[].connection.password`,
`image_location.access_token`) are overwritten in what is kept with a job.
"""

HOW: Final = """
## Why no validation library

One table (`workbench/manifest/keys/root.py` and the files beside it) validates, is the JSON schema, and made
this page. A library that does as much was measured: at the start of a command, importing pydantic and
making one model costs about 80 ms of processor time, PyYAML 10 ms, and all of this table with the reading
of a manifest 20 ms; and pydantic's faults know neither line nor column. Once loaded, reading takes 0.5 ms.
"""
