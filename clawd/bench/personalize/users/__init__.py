"""The simulated users, by name."""

from __future__ import annotations

from clawd.bench.personalize.users.persona import Persona
from clawd.bench.personalize.users.student import STUDENT
from clawd.bench.personalize.users.ta import TA
from clawd.bench.personalize.users.teacher import TEACHER

PERSONAS: dict[str, Persona] = {persona.name: persona for persona in (STUDENT, TA, TEACHER)}
