"""FfDL's manifests mean here what they meant there; the facts are those of its examples, present and past."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runners.shared.unsupported import not_built
from tests.quick.manifest.support import faults_of, loaded
from workbench.manifest import load
from workbench.spec import JobSpec, spec_from_json, spec_to_json

# Read when the tests are collected: a test itself sees a clean environment.
FOLDER = os.environ.get("FABRIC_FFDL_MANIFESTS", "")

COS = """\
data_stores:
  - id: sl-internal-os
    type: mount_cos
    training_data:
      container: tf_training_data
    training_results:
      container: tf_trained_model
    connection:
      auth_url: http://s3.default.svc.cluster.local
      user_name: test
      password: test
"""

OLD_S3 = """\
data_stores:
  - id: test-datastore
    type: s3_datastore
    training_data:
      container: mnist_lmdb_data
    connection:
      type: s3_datastore
      auth_url: http://s3.default.svc.cluster.local
      user_name: test
      password: test
"""

HOST_MOUNT = """\
data_stores:
  - id: hostmount
    type: mount_volume
    training_data:
      container: train
    training_results:
      container: results
    connection:
      type: host_mount
      name: "host-mount"
      path: "/cosdata"
"""


def manifest(
    framework: str,
    version: str,
    command: str,
    *,
    needs: str = "gpus: 0\ncpus: 0.5\nmemory: 1Gb\n",
    stores: str = COS,
) -> str:
    head = f'name: a job of FfDL\ndescription: as it was\nversion: "1.0"\n{needs}\n{stores}\n'
    return f"{head}framework:\n  name: {framework}\n  version: {version}\n  command: {command}\n"


def read(text: str) -> JobSpec:
    found = loaded(text)
    assert found.warnings == ()
    assert spec_from_json(spec_to_json(found.spec)) == found.spec
    return found.spec


def test_the_first_example_reads_as_it_ran() -> None:
    command = """>
    python3 convolutional_network.py --trainImagesFile ${DATA_DIR}/train-images-idx3-ubyte.gz
      --trainLabelsFile ${DATA_DIR}/train-labels-idx1-ubyte.gz --learningRate 0.001
      --trainingIters 2000
  # A remark between keys."""
    metrics = 'evaluation_metrics:\n  type: tensorboard\n  in: "$JOB_STATE_DIR/logs/tb"\n'

    spec = read(manifest("tensorflow", '"1.5.0-py3"', command) + metrics)

    assert spec.framework.command == (
        "python3 convolutional_network.py --trainImagesFile ${DATA_DIR}/train-images-idx3-ubyte.gz"
        " --trainLabelsFile ${DATA_DIR}/train-labels-idx1-ubyte.gz --learningRate 0.001 --trainingIters 2000"
    )
    assert spec.image == "tensorflow/tensorflow:1.5.0-py3"
    assert (spec.learners, spec.gpus, spec.cpus) == (1, 0, 0.5)
    assert spec.memory_bytes == 1_048_576_000
    assert spec.ends_when == "first"
    assert spec.evaluation_metrics is not None
    assert spec.evaluation_metrics.type == "tensorboard"
    assert spec.evaluation_metrics.source == "$JOB_STATE_DIR/logs/tb"
    (store,) = spec.data_stores
    assert (store.id, store.type, store.mount) == ("sl-internal-os", "mount_cos", False)
    assert (store.training_data, store.training_results) == ("tf_training_data", "tf_trained_model")


@pytest.mark.parametrize(
    ("framework", "version", "image"),
    [
        ("tensorflow", "1.5.0-gpu-py3", "tensorflow/tensorflow:1.5.0-gpu-py3"),
        ("tensorflow", '"1.5-py3-horovod"', "tensorflow/tensorflow:1.5-py3-horovod"),
        ("tensorflow", "latest-gpu-py3", "tensorflow/tensorflow:latest-gpu-py3"),
        ("tensorflow", "1.10", "tensorflow/tensorflow:1.10"),
        ("caffe", '"gpu"', "bvlc/caffe:gpu"),
        ("caffe", "cpu", "bvlc/caffe:cpu"),
        ("caffe", "1.0-py2", "bvlc/caffe:1.0-py2"),
        ("caffe2", "c2v0.8.1.cpu.full.ubuntu14.04", "caffe2ai/caffe2:c2v0.8.1.cpu.full.ubuntu14.04"),
        ("pytorch", "latest", "pytorch/pytorch:latest"),
        ("pytorch", "0.2", "pytorch/pytorch:0.2"),
        ('"h2o3"', '"latest"', "opsh2oai/h2o3-ffdl:latest"),
        ("horovod", "0.13.10-tf1.9.0-torch0.4.0-py3.5", "uber/horovod:0.13.10-tf1.9.0-torch0.4.0-py3.5"),
        ("pytorchmpi", "0925mpi", "tomcli/pytorch:0925mpi"),
        ("custom", '"tomcli/pytorch:0917mpi"', "tomcli/pytorch:0917mpi"),
    ],
)
def test_every_framework_names_its_image(framework: str, version: str, image: str) -> None:
    assert read(manifest(framework, version, "python train.py")).image == image


def test_an_image_tag_goes_before_the_version() -> None:
    spec = read(manifest("tensorflow", "1.5", "x\n  image_tag: nightly"))

    assert spec.image == "tensorflow/tensorflow:nightly"


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ("gpus: 1\ncpus: 2\nlearners: 1\nmemory: 1000MiB\n", (1, 1, 2.0, 1000 << 20)),
        ("gpus: 2\ncpus: 16\nlearners: 2\nmemory: 16Gb\n", (2, 2, 16.0, 16_000 << 20)),
        ("gpus: 0\nmemory: 1GiB\ncpus: 1\nlearners: 2\n", (2, 0, 1.0, 1 << 30)),
        ("gpus: 1\ncpus: 0.005\nmemory: 2000MiB\n", (1, 1, 0.005, 2000 << 20)),
        ("gpus: 1.0\ncpus: 30\nmemory: 16GB\nlearners: 0\n", (1, 1, 30.0, 16_000 << 20)),
        ("", (1, 0, None, None)),
        ("cpus: 0\ngpus:\nlearners:\n", (1, 0, None, None)),
    ],
)
def test_what_a_learner_needs_reads_as_it_was_meant(
    needs: str, expected: tuple[int, int, float | None, int | None]
) -> None:
    spec = read(manifest("pytorch", "latest", "python mnist.py --epochs 5", needs=needs))

    assert (spec.learners, spec.gpus, spec.cpus, spec.memory_bytes) == expected


def test_stores_that_repeat_their_type_are_read() -> None:
    (store,) = read(manifest("caffe", "cpu", "caffe train", stores=OLD_S3)).data_stores

    assert (store.type, store.mount, store.training_results) == ("s3_datastore", False, "")


def test_a_host_mount_is_read() -> None:
    (store,) = read(manifest("tensorflow", "1.5.0-py3", "x", stores=HOST_MOUNT)).data_stores

    assert store.type == "mount_volume"
    assert store.connection == {"type": "host_mount", "name": "host-mount", "path": "/cosdata"}


@pytest.mark.parametrize("kind", ["swift_datastore", "softlayer_objectstore", "bluemix_objectstore"])
def test_swift_stores_are_read_with_their_own_keys(kind: str) -> None:
    stores = (
        OLD_S3.replace("s3_datastore", kind)
        + "      region: dallas\n      domain_name: d\n      project_id: 4711\n"
    )

    (store,) = read(manifest("caffe", "cpu", "caffe train", stores=stores)).data_stores

    assert store.type == kind
    assert store.connection["project_id"] == "4711"


@pytest.mark.parametrize(
    "command",
    [
        "PS_HOSTS_COUNT=1 ./launcher.py python3 ${MODEL_DIR}/m.py --data_dir ${DATA_DIR}",
        "./setup.sh; . env_file; python -m torch.distributed.launch --nnodes=$NUM_LEARNERS t.py --size=1024;",
        "pip3 install keras; pip3 install scikit-learn; python3 experiment.py",
    ],
)
def test_shell_text_is_kept_as_it_is(command: str) -> None:
    assert read(manifest("custom", "image:tag", command)).framework.command == command


def test_a_condition_in_a_folded_command_stays_one_line() -> None:
    command = (
        '>\n    ./cluster.sh;\n    if [ "$LEARNER_ID" == "1" ]; then python b.py --file ${DATA_DIR}/t; fi;\n'
    )

    spec = read(manifest("h2o3", "latest", command))

    assert spec.framework.command == (
        './cluster.sh; if [ "$LEARNER_ID" == "1" ]; then python b.py --file ${DATA_DIR}/t; fi;'
    )


def test_a_job_under_mpi_validates_and_is_not_run_as_something_else() -> None:
    spec = read(manifest("horovod", "0.13.10", "python train.py", needs="learners: 2\n", stores=""))

    (sentence,) = not_built(spec)

    assert "MPI" in sentence
    assert "--set framework.name=custom" in sentence


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("keras", "name: tensorflow"),
        ("pytorh", "pytorch"),
        ("mxnet", "custom"),
    ],
)
def test_other_frameworks_are_refused_with_what_to_write(name: str, message: str) -> None:
    (fault,) = faults_of(manifest(name, "1", "x"))

    assert fault.key == "framework.name"
    assert "caffe, tensorflow, caffe2, pytorch, h2o3, horovod, pytorchmpi, custom" in fault.problem
    assert message in fault.problem + fault.hint


@pytest.mark.parametrize(
    ("name", "image"), [("tensorflow-gpu", "tensorflow/tensorflow"), ("caffe-gpu", "bvlc/caffe")]
)
def test_names_of_ffdls_first_manifests_are_read_with_a_warning(name: str, image: str) -> None:
    found = loaded(manifest(name, "1.5", "x"))

    assert found.spec.image == f"{image}:1.5"
    assert [warning.key for warning in found.warnings if "older name" in warning.problem] == [
        "framework.name"
    ]


def test_placeholders_validate_with_a_warning_each() -> None:
    stores = COS.replace("http://s3.default.svc.cluster.local", "test").replace(
        "user_name: test", "user_name: <your id>"
    )

    found = loaded(manifest("tensorflow", "1.5", "x", stores=stores))

    assert [warning.key for warning in found.warnings] == [
        "data_stores.0.connection.auth_url",
        "data_stores.0.connection.user_name",
    ]
    assert all("placeholder" in warning.problem for warning in found.warnings)


def files() -> list[Path]:
    return (
        sorted(path for path in Path(FOLDER).iterdir() if path.suffix in (".yml", ".yaml")) if FOLDER else []
    )


@pytest.mark.skipif(not FOLDER, reason="FABRIC_FFDL_MANIFESTS names no folder of FfDL's manifests")
@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.name))
def test_a_folder_of_manifests_validates(path: Path) -> None:
    found = load(path, environ={}, defaults={})

    assert found.spec.framework.command
    assert "\n" not in found.spec.framework.command
    assert found.spec.memory_bytes is None or found.spec.memory_bytes >= 300 << 20
    assert found.spec.data_stores
