"""Context management as documents: which managers run at which hook, and when."""

from buoyline.management.activation import Activation
from buoyline.management.bodies import chosen, management_in
from buoyline.management.context_config import from_context_config, to_context_config
from buoyline.management.conversation import ManagedConversation
from buoyline.management.custom import Reducer
from buoyline.management.document import ContextManagement
from buoyline.management.entry import Entry
from buoyline.management.explaining import advice, explained
from buoyline.management.hooks import HOOKS, Hook
from buoyline.management.managers import MANAGERS
from buoyline.management.problems import DocumentWarning
from buoyline.management.registry import BUILT_IN, Registry, built_in
from buoyline.management.running import Ran, Report, run, run_on_overflow
from buoyline.management.situation import Held, Situation
from buoyline.management.steps import Actions, Decision, Done, Leave, Pin, Replace, Step, Summarise
from buoyline.management.strands_settings import from_strands_settings, to_strands_settings

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
