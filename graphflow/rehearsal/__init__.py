"""Rehearsals: many runs of a graph with stand-ins, in virtual time, before it costs anything."""

from graphflow.rehearsal.distributions import Distribution as Distribution
from graphflow.rehearsal.distributions import Exponential as Exponential
from graphflow.rehearsal.distributions import Fixed as Fixed
from graphflow.rehearsal.distributions import LogNormal as LogNormal
from graphflow.rehearsal.distributions import Normal as Normal
from graphflow.rehearsal.distributions import Recorded as Recorded
from graphflow.rehearsal.distributions import Uniform as Uniform
from graphflow.rehearsal.distributions import distribution as distribution
from graphflow.rehearsal.histograms import plot as plot
from graphflow.rehearsal.recorded import Recordings as Recordings
from graphflow.rehearsal.recorded import recordings as recordings
from graphflow.rehearsal.results import End as End
from graphflow.rehearsal.results import Rehearsal as Rehearsal
from graphflow.rehearsal.results import Sample as Sample
from graphflow.rehearsal.results import Summary as Summary
from graphflow.rehearsal.running import rehearse as rehearse
from graphflow.rehearsal.running import rehearse_sync as rehearse_sync
from graphflow.rehearsal.settings import Choices as Choices
