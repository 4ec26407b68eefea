"""Training samples as values."""

import pickle

from tests.train.rewards.made import sample

from memagent.tasks import Sample
from memagent_train.data.samples import TrainingSample


def test_a_training_sample_is_a_sample_with_columns_and_a_score() -> None:
    made = sample("12", scorer="f1", columns={"tests": ["a", "b"]})
    assert isinstance(made, Sample)
    assert pickle.loads(pickle.dumps(made)) == made
    assert TrainingSample.model_validate_json(made.model_dump_json()) == made


def test_documents_and_columns_stay_out_of_messages() -> None:
    text = repr(sample(columns={"secret": 1}))
    assert "mill" not in text
    assert "secret" not in text
