"""Context management as documents: which managers run at which hook, and when."""

from buoyline.management.conversation import ManagedConversation
from buoyline.management.custom import Reducer
from buoyline.management.managers import MANAGERS
from buoyline.management.model import ContextManagement, Entry
from buoyline.management.opensearch import chosen, management_in
from buoyline.management.registry import BUILT_IN, Registry, built_in
from buoyline.management.rules import HOOKS, Activation, DocumentWarning, Hook
from buoyline.management.run import Ran, Report, run, run_on_overflow
from buoyline.management.settings import (
    advice,
    explained,
    from_context_config,
    from_strands_settings,
    to_context_config,
    to_strands_settings,
)
from buoyline.management.situation import Held, Situation
from buoyline.management.steps import Actions, Decision, Done, Leave, Pin, Replace, Step, Summarise

__all__ = [
    "BUILT_IN",
    "HOOKS",
    "MANAGERS",
    "Actions",
    "Activation",
    "ContextManagement",
    "Decision",
    "DocumentWarning",
    "Done",
    "Entry",
    "Held",
    "Hook",
    "Leave",
    "ManagedConversation",
    "Pin",
    "Ran",
    "Reducer",
    "Registry",
    "Replace",
    "Report",
    "Situation",
    "Step",
    "Summarise",
    "advice",
    "built_in",
    "chosen",
    "explained",
    "from_context_config",
    "from_strands_settings",
    "management_in",
    "run",
    "run_on_overflow",
    "to_context_config",
    "to_strands_settings",
]
