"""What each physics says of the fields of its states and records."""

import numpy as np
import pytest
from tests.wave.elastic_setups import random_rock
from tests.wave.setups import random_model

from forebay.wave import largest_dt
from forebay.wave.physics import physics_of


@pytest.mark.parametrize("shape", [(12, 14), (12, 13, 14)])
@pytest.mark.parametrize(
    ("make", "images"), [(random_model, ["pp"]), (random_rock, ["pp"]), (random_rock, ["velocity"])]
)
def test_what_a_physics_says_of_its_fields_is_so(shape, make, images):
    model = make(shape)
    kind = physics_of(model)
    propagator = kind(model, 0.5 * largest_dt(model), 4, np.float32)
    state = propagator.zeros()
    assert kind.state_shapes(model.grid, 4) == {name: values.shape for name, values in state.items()}
    assert kind.record_fields(len(shape), images) == tuple(propagator.image_record(state, images))
