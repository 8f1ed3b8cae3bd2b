"""`forebay explore`: plans of the real planner, for whoever knows the token, on this computer alone."""

import json
import threading
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from tests.browser import needs_browser, read_address

import forebay as fb
from forebay.cli.explore import LOOPBACK, Server
from forebay.report.explorer import SLIDERS, answer

ASKED = {"steps": "40", "state": "1e9", "device": "8e9", "host": "2e10", "link": "5e10", "forward": "1e-3"}


@pytest.fixture
def server():
    with Server(0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def got(server, path, called=None, **query):
    request = Request(f"http://{server.host}{path}?{urlencode(query)}", headers={"Host": called or server.host})
    with urlopen(request) as answered:
        return answered.read().decode()


def test_the_answer_is_the_plan_that_the_planner_makes():
    costs = fb.Costs(forward=1e-3, backward=8e-4, copy=2e12, host=fb.Link(5e10, 5e10), disk=fb.Link(2e9, 2e9))
    plan = fb.plan(40, 10**9, fb.Budget(device=8e9, host=2e10), costs=costs, hurry=True)
    found = answer(ASKED)
    assert found["explained"] == plan.explain() and found["drawn"] == plan.plot().markup


def test_a_codec_takes_part():
    coded = answer(ASKED | {"ratio": "20", "coding": "1e13"})["explained"]
    assert "20 times smaller" in coded and "smaller" not in answer(ASKED)["explained"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"device": "1e7"}, "budget"),
        ({"steps": "1e9"}, "steps of the loop: give a number between 10 and 100000"),
        ({"state": "much"}, "bytes of a state: give a number"),
        ({"forward": "nan"}, "a step forward: give a number"),
    ],
)
def test_what_no_plan_fits_into_is_told_in_words(more, says):
    assert says in answer(ASKED | more)["error"]


def test_only_who_knows_the_token_and_the_name_is_answered(server):
    assert server.server_address[0] == LOOPBACK
    assert 'id="ratio"' in got(server, "/", token=server.token)
    assert json.loads(got(server, "/plan", token=server.token, **ASKED))["seconds"]
    for wrong in ({"token": "wrong"}, {}, {"token": server.token, "called": f"elsewhere.example:{server.server_port}"}):
        for path in ("/", "/plan"):
            with pytest.raises(HTTPError, match="403"):
                got(server, path, **wrong)
    with pytest.raises(HTTPError, match="404"):
        got(server, "/etc/passwd", token=server.token)


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_in_a_browser_the_plan_follows_a_slider(server, tmp_path, width):
    told = read_address(server.address, tmp_path / "profile", width)
    assert 'data-answered="1"' in told and "forward again" in told and "hierarchical" in told
    assert all(f'id="{slider.name}"' in told for slider in SLIDERS) and "3800" in told
