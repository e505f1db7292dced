"""Pictures that every made-up run was tested on."""

import pytest

from report.made_up_runs import make_pictures


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return make_pictures(tmp_path_factory.mktemp("data") / "pets & <birds>")
