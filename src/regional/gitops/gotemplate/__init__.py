"""Go's text/template for ApplicationSets, because no Python library evaluates it.

Argo CD expands ApplicationSets with Go templates and sprig. What a template *means* hides in Go's corners (a missing
key prints `<no value>`, but fails once it is piped into a string function), and a region's Applications depend on
them, so this is an evaluator of the language itself and not a translation to another template language. Covered:
actions, pipelines, variables, if/with/range/else/break/continue, comments, trim markers, the built-in functions, and
the sprig functions in use; anything else is an error that names it.
"""

from regional.gitops.gotemplate.evaluate import Template, render
from regional.gitops.gotemplate.values import MISSING, StringMap, TemplateError

__all__ = ["MISSING", "StringMap", "Template", "TemplateError", "render"]
