"""What a long answer is made of, and how fast it comes."""

from __future__ import annotations

#: Characters of one frame at 200 tokens per second.
FRAME = 26
SECTION = r"""## Section {n}

Words with **emphasis**, `code`, a [link](https://example.org/{n}) and $x_{{{n}}}$ that go on for a line or two, as the
paragraphs of answers do.

$$
y_{{{n}}} = \frac{{a}}{{b}}
$$

- first point
- second point
  - a deeper one

| a | b |
|---|--:|
| 1 | {n} |
| 2 | 3 |

```python
def function_{n}(value: float) -> float:
    return value * {n}
```

"""
