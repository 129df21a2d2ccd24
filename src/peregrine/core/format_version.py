"""The version of everything that is stored and sent: one number (decision 0027).

It goes up with any change after which the version before would misread, or be misread by, what is on a disk or on the
wire: a field, its type or its meaning, a name in core/stored_names.py that no longer stands for the same, the layout of
a directory. tests/unit/test_stored_shapes.py notices most of these.
"""

FORMAT = 1
