"""The JSON Schema of `backend: {type: burst, ...}`, for editors. Pure."""

_PLACE = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "object",
            "properties": {
                "type": {"type": "string"},
                "name": {
                    "type": "string",
                    "description": "What the place is called; its type when left out.",
                },
                "concurrent": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "Most trials in flight there.",
                },
                "compute": {"type": "object", "description": "What differs there of compute."},
            },
            "required": ["type"],
        },
    ]
}
BURST = {
    "properties": {
        "first": {**_PLACE, "description": "Where trials go while there is room."},
        "then": {
            "anyOf": [*_PLACE["anyOf"], {"type": "array", "minItems": 1, "items": _PLACE}],
            "description": "Where they go otherwise: one place, or several in order.",
        },
        "after": {
            "type": ["string", "number"],
            "description": "How long a trial waits in one place before it is moved on; 10m when left out.",
        },
    },
    "required": ["first", "then"],
}
