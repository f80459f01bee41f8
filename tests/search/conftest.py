"""What a search over several backends needs: a host, a container engine, a namespace."""

from tests.cli.conftest import fabric as fabric
from tests.containers.conftest import engine as engine
from tests.kubernetes.conftest import space as space
from tests.kubernetes.conftest import space_labels as space_labels
from tests.ssh.conftest import box as box
from tests.ssh.conftest import box_environment as box_environment
from tests.ssh.conftest import box_home as box_home
from tests.ssh.conftest import box_program as box_program
from tests.ssh.conftest import box_settings as box_settings
from tests.ssh.conftest import box_within as box_within
