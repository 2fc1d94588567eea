"""Every diagnostic code and its one-line title.

The hundreds digit says which phase speaks: 0 reading YAML, 1 the shape of the document, 2 its
meaning, 3 constructs that the language has and this version does not build yet, 4 the planner, 6
lint. A code never changes its meaning; a retired one is not reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CODES: Mapping[str, str] = MappingProxyType(
    {
        # 0: reading
        "BC001": "the text is not YAML",
        "BC002": "the file is empty",
        "BC003": "more than one YAML document",
        "BC004": "a key appears twice",
        "BC005": "a key is not a plain string",
        "BC006": "tags are not part of the language",
        "BC007": "anchors and aliases are not part of the language",
        "BC008": "the document nests too deeply",
        "BC009": "the file cannot be read",
        "BC010": "the file is not UTF-8 text",
        "BC011": "the file is too large",
        "BC012": "a text is too long",
        "BC013": "the text is not JSON",
        # 1: shape
        "BC101": "unknown key",
        "BC102": "a required key is missing",
        "BC103": "a value has the wrong type",
        "BC104": "a value is out of range",
        "BC105": "a value is not one of the allowed words",
        "BC106": "unsupported version of the language",
        # 2: meaning
        "BC201": "a name is not a valid identifier",
        "BC202": "a name is reserved",
        "BC203": "a name refers to nothing",
        "BC204": "something is declared and never used",
        "BC205": "the sizes of a topology do not multiply out",
        "BC206": "layer indices are wrong or overlap",
        "BC207": "a reduction does not fit the kind of stage",
        "BC208": "a custom operation is used in the wrong role",
        "BC209": "a custom operation is malformed",
        "BC210": "a value is listed twice",
        "BC211": "a pattern does not fit its stages",
        "BC212": "an attribute does not fit the kind of stage",
        "BC213": "settings do not fit together",
        "BC214": "an update does not outlive its producer",
        # 3: not built yet
        "BC301": "designed, but not supported yet",
        # 4: planning
        "BC401": "a boundary has no plan",
        "BC402": "the axes of a topology do not fit together",
        "BC403": "a variant applies to no topology",
        # 6: lint, all warnings and notes
        "BC601": "a second spelling of what is meant anyway",
        "BC602": "something that can never apply",
        "BC603": "a read asks for rows that it does not need",
        "BC604": "two topologies are the same",
        "BC605": "a variant that some topologies cannot run",
        "BC606": "context shards that no variant uses",
        "BC607": "the stack file and the model's config disagree",
        "BC608": "the model is of no known family",
        "BC691": "a suppression is not complete",
        "BC692": "a suppression suppresses nothing",
    }
)


def title(code: str) -> str:
    """The one-line title of `code`. Raises KeyError for a code that is not registered."""
    return CODES[code]
