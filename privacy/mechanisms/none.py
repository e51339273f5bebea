"""No noise: the update leaves in the clear, clipped or not."""

from typing import Literal

from privacy.mechanism import NoGuarantee
from privacy.settings import PrivacySettings


class NoNoiseSettings(PrivacySettings):
    """These are the settings where no noise is drawn."""

    mechanism: Literal["none"] = "none"


class NoNoise(NoGuarantee):
    """This is an update that leaves in the clear."""

    name = "none"
    settings = NoNoiseSettings
    unknown = "everything: the update leaves in the clear"
    citation = "none: nothing is claimed"
