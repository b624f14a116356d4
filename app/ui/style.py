"""The little CSS that the theme cannot say, and HTML blocks built from escaped text."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from app.ui.format import with_micro

_LINE = "color-mix(in srgb, currentColor 16%, transparent)"
_MUTED = "color-mix(in srgb, currentColor 68%, transparent)"

_WIDEST_PX = 2080

CSS = f"""<style>
[data-testid="stAppDeployButton"], [data-testid="stMainMenu"], #MainMenu, footer {{display:none}}
[data-testid="stMainBlockContainer"] {{max-width:{_WIDEST_PX}px}}
@media (min-width:640px) {{
  [data-testid="stHeader"] {{padding-inline:calc(max(0px, 50vw - {_WIDEST_PX // 2}px) + 4.2rem)}}
}}
[data-testid="stPageLink"] a {{padding-left:0}}
[data-testid="stMain"] [data-testid="stPageLink"] a:not(:hover) {{background:none}}
[data-testid="stMain"] [data-testid="stPageLink"] a {{color:light-dark(#005d94, #8cc6f0)}}
[data-testid="stMain"] [data-testid="stPageLink"] a * {{color:inherit}}
[data-testid="stPageLink"] a * {{white-space:normal;overflow-wrap:anywhere}}
[data-testid="stMetricValue"], [data-testid="stTable"] td {{font-variant-numeric:tabular-nums}}
[data-testid="stMetricLabel"] p {{font-size:.85rem;white-space:normal}}
[data-testid="stHeadingWithActionElements"] a {{display:none}}
[data-testid="stCaptionContainer"] {{color:inherit;opacity:.74}}
[data-testid="stCaptionContainer"] code {{color:inherit;background:none;padding:0}}
[data-testid="stButtonGroup"] [data-selected="true"] p {{color:light-dark(#005d94, #8cc6f0)}}
[data-testid="stCode"] .token {{color:inherit !important}}
[data-testid="stMetricValue"] > div {{white-space:normal;overflow:visible}}
.wb-title {{font-size:1.75rem;font-weight:650;line-height:1.2;margin:.1rem 0 .4rem;
  overflow-wrap:anywhere}}
.wb-chips {{display:flex;flex-wrap:wrap;gap:.35rem;align-items:center;font-size:.82rem}}
.wb-chip {{border:1px solid {_LINE};border-radius:999px;padding:.08rem .6rem;white-space:nowrap;
  max-width:100%;overflow:hidden;text-overflow:ellipsis}}
.wb-muted {{color:{_MUTED}}}
.wb-verdict {{border:1px solid {_LINE};border-left:5px solid var(--wb-accent);border-radius:.5rem;
  padding:1rem 1.2rem 1.05rem;overflow-wrap:anywhere}}
.wb-verdict h2 {{font-size:1.22rem;line-height:1.3;margin:0 0 .3rem;padding:0;font-weight:650}}
.wb-verdict p {{margin:.15rem 0;line-height:1.5}}
.wb-verdict ul {{margin:.3rem 0 .2rem;padding-left:1.15rem;columns:2 30rem;column-gap:2.5rem}}
.wb-verdict li {{margin:.1rem 0;break-inside:avoid;line-height:1.45;font-size:.95rem}}
.wb-bar {{display:flex;height:1.35rem;border-radius:.3rem;overflow:hidden;margin:.75rem 0 .55rem;
  background:{_LINE}}}
.wb-bar span {{display:block;min-width:1px}}
.wb-legend {{display:flex;flex-wrap:wrap;gap:.15rem 1rem;font-size:.82rem;
  font-variant-numeric:tabular-nums}}
.wb-legends {{display:flex;flex-wrap:wrap;gap:.15rem 2.2rem}}
.wb-legend i {{display:inline-block;width:.7rem;height:.7rem;border-radius:.15rem;
  margin-right:.35rem;vertical-align:-.05rem}}
.wb-empty {{border:1px dashed {_LINE};border-radius:.5rem;padding:1.1rem 1.2rem}}
.wb-empty b {{display:block;margin-bottom:.15rem}}
.wb-dot {{display:inline-block;width:.6rem;height:.6rem;border-radius:50%;margin-right:.4rem}}
dl.wb-kv {{margin:.2rem 0 .6rem !important;padding:0;display:grid;
  grid-template-columns:max-content 1fr;gap:.2rem 1rem;font-size:.9rem}}
.wb-kv dt {{color:{_MUTED}}} .wb-kv dd {{margin:0;overflow-wrap:anywhere}}
.wb-said {{display:grid;grid-template-columns:minmax(150px,17rem) 1fr;gap:0 1.2rem;
  font-size:.9rem;line-height:1.45}}
.wb-said > * {{border-top:1px solid {_LINE};padding:.45rem 0;overflow-wrap:anywhere}}
.wb-said b {{display:block;font-weight:600}}
h2.wb-model {{font-size:1.25rem;font-weight:650;padding:0;margin:.3rem .4rem .3rem 0}}
h3.wb-card {{font-size:1.05rem;font-weight:650;padding:0;margin:0 0 .3rem;overflow-wrap:anywhere}}
h3.wb-card .wb-muted {{font-weight:400;font-size:.9rem}}
.wb-uuid {{font-family:monospace;font-size:.8rem;color:{_MUTED};margin-bottom:.4rem;
  overflow-wrap:anywhere}}
.wb-printed {{overflow-x:auto;margin:.2rem 0 .4rem}}
.wb-printed table {{border-collapse:collapse;font-size:.85rem;line-height:1.35;min-width:40%}}
.wb-printed th {{text-align:left;font-weight:600;vertical-align:bottom;
  border-bottom:1px solid {_LINE};padding:.25rem .6rem}}
.wb-printed th[colspan] {{border-bottom-color:transparent;text-align:right}}
.wb-printed td {{border-bottom:1px solid {_LINE};padding:.3rem .6rem;vertical-align:top;
  white-space:nowrap}}
.wb-printed td.wb-long {{white-space:normal;min-width:12rem;overflow-wrap:anywhere}}
.wb-printed tr > :first-child {{padding-left:.1rem}}
.wb-printed .wb-n {{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
.wb-printed .wb-fault, .wb-printed .wb-oom {{font-weight:650;
  color:color-mix(in srgb, #d55e00 70%, currentColor)}}
.wb-printed tbody tr:hover {{background:color-mix(in srgb, currentColor 5%, transparent)}}
.wb-printed .wb-theirs td {{color:{_MUTED};font-style:italic}}
.wb-terms {{margin:.3rem 0;display:grid;gap:.9rem 2rem;
  grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr))}}
.wb-terms > div {{border-top:1px solid {_LINE};padding-top:.55rem;overflow-wrap:anywhere}}
.wb-terms p {{margin:.1rem 0;font-size:.93rem;line-height:1.45}}
.wb-terms code {{font-size:.82rem;padding:0;background:none;color:inherit}}
.wb-terms p.wb-muted {{font-size:.85rem}}
@media (max-width:640px) {{
  [data-testid="stMetricValue"] {{font-size:1.1rem}}
  .wb-title {{font-size:1.35rem}} .wb-verdict {{padding:.8rem .85rem}}
  .wb-verdict h2 {{font-size:1.08rem}}
  .wb-said {{grid-template-columns:1fr}} .wb-said > :nth-child(even) {{border:0;padding-top:0}}
  .st-key-run_actions {{justify-content:flex-start !important}}
  .wb-kv {{grid-template-columns:1fr}} .wb-kv dd {{margin-bottom:.35rem}}
}}
</style>"""


def inject() -> None:
    """Put the style sheet into the page; called once by the entry script."""
    st.html(CSS)


def chips(texts: Sequence[str], tail: str = "") -> str:
    """Return short facts as chips; every text is escaped."""
    items = "".join(f'<span class="wb-chip">{escape(t)}</span>' for t in texts if t)
    return f'<div class="wb-chips">{items}<span class="wb-muted">{escape(tail)}</span></div>'


def line(texts: Sequence[str]) -> None:
    """Draw short facts in one muted line."""
    text = " \u00b7 ".join(t for t in texts if t)
    st.html(f'<div class="wb-muted">{escape(text)}</div>')


def header(title: str, facts: Sequence[str] = (), tail: str = "") -> None:
    """Draw a page title that came from data, with its facts beneath."""
    heading = f'<h1 class="wb-title" style="padding:0">{escape(title)}</h1>'
    st.html(heading + (chips(facts, tail) if facts or tail else ""))


def facts_line(facts: Sequence[str], tail: str = "") -> None:
    """Draw short facts as chips, and what follows them."""
    st.html(chips(facts, tail))


def stacked_bar(parts: list[tuple[str, float, str]], label: str) -> str:
    """Return a bar of (name, fraction of the whole, colour) with an accessible label."""
    spans = "".join(
        f'<span style="width:{100 * frac:.3f}%;background:{colour}" title="{escape(name)}"></span>'
        for name, frac, colour in parts
        if frac > 0
    )
    return f'<div class="wb-bar" role="img" aria-label="{escape(label)}">{spans}</div>'


def legend(items: list[tuple[str, str, str]]) -> str:
    """Return legend entries from (name, figure, colour); without a colour there is no swatch."""
    cells = "".join(
        "<span>"
        + (f'<i style="background:{colour}"></i>' if colour else "")
        + f'{escape(name)} <span class="wb-muted">{escape(figure)}</span></span>'
        for name, figure, colour in items
    )
    return f'<div class="wb-legend">{cells}</div>'


def legends(*groups: list[tuple[str, str, str]]) -> str:
    """Return several legends side by side, each headed by its first entry; others are left out."""
    return f'<div class="wb-legends">{"".join(legend(g) for g in groups if len(g) > 1)}</div>'


def verdict(
    title: str,
    lines: list[str],
    evidence: list[str],
    accent: str,
    extra: str = "",
    after: Sequence[str] = (),
) -> None:
    """Draw the answer of a page: title, sentences, evidence, what to do `after` it.

    `extra` is HTML of ours, drawn as it is; every text is escaped.
    """
    body = "".join(f"<p>{_said(line)}</p>" for line in lines if line)
    points = "".join(f"<li>{_said(e)}</li>" for e in evidence if e)
    listing = f"<ul>{points}</ul>" if points else ""
    listing += "".join(f"<p>{_said(line)}</p>" for line in after if line)
    st.html(
        f'<section class="wb-verdict" style="--wb-accent:{accent}"><h2>{_said(title)}</h2>'
        f"{body}{listing}{extra}</section>"
    )


def _said(text: str) -> str:
    """Return a sentence as HTML: escaped, units with their signs, `Next:` set apart."""
    safe = escape(with_micro(text))
    return f"<b>Next:</b>{safe.removeprefix('Next:')}" if safe.startswith("Next:") else safe


def empty_state(title: str, text: str) -> None:
    """Say that there is nothing here, and what to do about it."""
    st.html(f'<div class="wb-empty"><b>{escape(title)}</b>{escape(text)}</div>')


def facts(pairs: list[tuple[str, str]]) -> None:
    """Draw names and values as a description list; both are escaped."""
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs)
    st.html(f'<dl class="wb-kv">{rows}</dl>')
