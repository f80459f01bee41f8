"""Reads the options of a training script out of its text, without running it: argparse, click, typer, fire, hydra."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from workbench.manifest.yaml.compose import compose
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import MapNode, Node, ScalarNode
from workbench.values import dataclass

_NAME: Final = re.compile(r"[^A-Za-z0-9_]+")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
_REQUIRED: Final = "<a value>"
_HELP_CHARACTERS: Final = 80
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_POWER_MAX: Final = 64


class _Computed(ValueError):
    """A value that only running the script would tell."""


@dataclass(frozen=True, slots=True)
class ScriptOption:
    """One option of a script as a parameter of a manifest."""

    param: str
    value: str | int | float | bool
    """Its default; of a flag what the command gets: the flag itself, or nothing."""
    text: str
    """What the command line has for it, with ``${params.NAME}`` in it."""
    help: str = ""


@dataclass(slots=True)
class ScriptOptions:
    """What could be read of a script's options."""

    library: str = ""
    """``argparse``, ``click``, ``typer``, ``fire`` or ``hydra``; empty where it takes no options that we know."""
    options: list[ScriptOption] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What is not among the parameters, each with the reason."""

    def command(self, start: str) -> str:
        """Return the command that passes the parameters."""
        return " ".join([start, *(option.text for option in self.options)])

    def add(self, name: str, value: Any, text: Callable[[str], str], help_text: str = "") -> None:
        """Add an option; one whose value a manifest cannot hold is left out by name."""
        param = _NAME.sub("_", name.lstrip("-")).strip("_")
        if not param or not param[0].isalpha():
            self.left_out.append(f"{name}: no name for a parameter")
        elif any(option.param == param for option in self.options):
            self.left_out.append(f"{name}: given twice")
        elif not isinstance(value, (str, int, float, bool)):
            self.left_out.append(f"{name}: its default is {_shown(value)}")
        else:
            help_line = " ".join(help_text.split())[:_HELP_CHARACTERS].rstrip()
            self.options.append(ScriptOption(param, value, text(_quoted(param, value)), help_line))


def read_script_options(text: str, config: Callable[[str], Mapping[str, Any] | None]) -> ScriptOptions:
    """Return the options of a script.

    Args:
        text: the script.
        config: returns what a hydra configuration holds, by its path relative to the script; None without one.

    Raises:
        SyntaxError: it is not Python.
    """
    tree = ast.parse(text)
    reader = _Reader(tree)
    hydra = reader.hydra(config)
    if hydra.library:
        return hydra
    for read in (reader.typer, reader.click, reader.argparse, reader.fire):
        found = read()
        if found.library:
            return found
    return ScriptOptions()


class _Reader:
    """A script's syntax tree, and the names in it."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._modules: dict[str, str] = {}
        """What names stand for that are imported: ``argparse``, ``argparse.ArgumentParser``."""
        self._constants: dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._modules[alias.asname or alias.name] = alias.name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._constants[statement.targets[0].id] = statement.value

    # argparse

    def argparse(self) -> ScriptOptions:
        """Return the options that ``add_argument`` makes."""
        found = ScriptOptions()
        calls = [node for node in self._calls() if self._method(node) == "add_argument"]
        is_used = any(
            self._full_name(node.func).endswith(("ArgumentParser", "ArgParser")) for node in self._calls()
        )
        if not calls or not (is_used or "argparse" in self._modules.values()):
            return found
        found.library = "argparse"
        for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
            self._argument(call, found)
        if any(self._method(node) == "add_subparsers" for node in self._calls()):
            found.left_out.append("subcommands: write the one to run into the command")
        return found

    def _argument(self, call: ast.Call, found: ScriptOptions) -> None:
        names = [
            arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
        if not names or len(names) < len(call.args):
            found.left_out.append(f"line {call.lineno}: the option's name is computed")
            return
        keywords = _keywords(call)
        flag = next((name for name in names if name.startswith("--")), names[0])
        try:
            action = self._value(keywords["action"]) if "action" in keywords else "store"
        except _Computed:
            action = ast.unparse(keywords["action"])
        if action in ("help", "version"):
            return
        help_text = self._text_of(keywords.get("help"))
        if action in ("store_true", "store_false"):
            found.add(
                flag, "", str, help_text or f"{flag} turns it {'on' if action == 'store_true' else 'off'}"
            )
            self._hint_flag(found, flag)
            return
        if str(action).endswith("BooleanOptionalAction"):
            self._switch(found, flag, "--no-" + flag.lstrip("-"), keywords.get("default"), help_text)
            return
        if action != "store":
            found.left_out.append(f"{flag}: its action is {action}")
            return
        self._valued(found, flag, keywords, help_text, is_positional=not flag.startswith("-"))

    def _valued(
        self,
        found: ScriptOptions,
        flag: str,
        keywords: Mapping[str, ast.expr],
        help_text: str,
        *,
        is_positional: bool,
        separator: str = " ",
    ) -> None:
        def passed(text: str) -> str:
            return text if is_positional else f"{flag}{separator}{text}"

        is_needed = self._text_of(keywords.get("required")) == "True" or is_positional
        default = keywords.get("default")
        try:
            several = self._value(keywords["nargs"]) if "nargs" in keywords else None
        except _Computed:
            several = "?"
        if default is None:
            if is_needed and several != "*" and several != "?":
                found.add(flag, _REQUIRED, passed, help_text or "it has to be given")
            else:
                found.left_out.append(f"{flag}: it has no default")
            return
        try:
            value = self._value(default)
        except _Computed:
            found.left_out.append(f"{flag}: its default is computed: {ast.unparse(default)[:60]}")
            return
        if value is None:
            found.left_out.append(f"{flag}: it has no default")
        elif isinstance(value, (list, tuple)) and value and several is not None:
            text = " ".join(str(item) for item in value)
            found.add(flag, text, lambda quoted: passed(quoted.strip("'")), help_text)
        else:
            found.add(flag, value, passed, help_text)

    def _switch(
        self, found: ScriptOptions, on: str, off: str, default: ast.expr | None, help_text: str
    ) -> None:
        try:
            is_on = bool(self._value(default)) if default is not None else False
        except _Computed:
            found.left_out.append(f"{on}: its default is computed")
            return
        found.add(on, on if is_on else off, str, help_text or f"{on} or {off}")
        self._hint_flag(found, on)

    def _hint_flag(self, found: ScriptOptions, flag: str) -> None:
        """Have a flag's parameter stand in the command as it is."""
        if found.options and found.options[-1].param == _NAME.sub("_", flag.lstrip("-")).strip("_"):
            option = found.options[-1]
            help_text = option.help if flag in option.help else f"{flag}: {option.help}"
            found.options[-1] = ScriptOption(
                option.param, option.value, f"${{params.{option.param}}}", help_text
            )

    # click

    def click(self) -> ScriptOptions:
        """Return the options of the command that click's decorators make."""
        found = ScriptOptions()
        commands = [
            function
            for function in self._functions()
            if any(
                self._full_name(_called(one)).endswith(("click.command", ".command"))
                for one in function.decorator_list
            )
            and any(self._full_name(_called(one)).startswith("click") for one in function.decorator_list)
        ]
        if not commands:
            return found
        found.library = "click"
        if len(commands) > 1:
            names = ", ".join(function.name for function in commands)
            found.left_out.append(f"several commands ({names}): write the one to run into the command")
            return found
        for decorator in commands[0].decorator_list:
            if isinstance(decorator, ast.Call):
                name = self._full_name(decorator.func)
                if name.endswith(("click.option", "click.argument")):
                    self._click_option(decorator, found, is_argument=name.endswith("argument"))
        return found

    def _click_option(self, call: ast.Call, found: ScriptOptions, *, is_argument: bool) -> None:
        names = [
            arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
        if not names:
            found.left_out.append(f"line {call.lineno}: the option's name is computed")
            return
        keywords = _keywords(call)
        help_text = self._text_of(keywords.get("help"))
        flag = next((name for name in names if name.startswith("--")), names[0])
        if "/" in flag:
            on, _, off = (part.strip() for part in flag.partition("/"))
            self._switch(found, on, off, keywords.get("default"), help_text)
        elif self._text_of(keywords.get("is_flag")) == "True":
            found.add(flag, "", str, help_text or f"{flag} turns it on")
            self._hint_flag(found, flag)
        else:
            self._valued(found, flag, keywords, help_text, is_positional=is_argument)

    # typer and fire: the options are a function's parameters

    def typer(self) -> ScriptOptions:
        """Return the options of typer's command."""
        found = ScriptOptions()
        if not any(name.split(".")[0] == "typer" for name in self._modules.values()):
            return found
        run = [
            node.args[0] for node in self._calls() if self._full_name(node.func) == "typer.run" and node.args
        ]
        names = {node.id for node in run if isinstance(node, ast.Name)}
        functions = [
            function
            for function in self._functions()
            if function.name in names
            or any(_called_name(one) in ("command", "callback") for one in function.decorator_list)
        ]
        if not functions:
            return found
        found.library = "typer"
        if len(functions) > 1:
            shown = ", ".join(function.name for function in functions)
            found.left_out.append(f"several commands ({shown}): write the one to run into the command")
            return found
        for name, annotation, default in _parameters(functions[0]):
            self._typer_parameter(found, name, annotation, default)
        return found

    def _typer_parameter(
        self, found: ScriptOptions, name: str, annotation: ast.expr | None, default: ast.expr | None
    ) -> None:
        declared = default if isinstance(default, ast.Call) else None
        type_text = ast.unparse(annotation) if annotation is not None else ""
        if isinstance(annotation, ast.Subscript) and _called_name(annotation.value) == "Annotated":
            parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
            type_text = ast.unparse(parts[0]) if parts else ""
            declared = next((part for part in parts[1:] if isinstance(part, ast.Call)), None)
            value = default
        elif declared is not None:
            value = declared.args[0] if declared.args else _keywords(declared).get("default")
        else:
            value = default
        kind = _called_name(declared.func) if declared is not None else ""
        keywords = _keywords(declared) if declared is not None else {}
        given = [
            one.value
            for one in (declared.args if declared is not None else ())
            if isinstance(one, ast.Constant)
        ]
        flags = [one for one in given if isinstance(one, str) and one.startswith("--")]
        flag = flags[0] if flags else "--" + name.replace("_", "-")
        help_text = self._text_of(keywords.get("help"))
        is_missing = value is None or (isinstance(value, ast.Constant) and value.value is ...)
        if kind == "Argument" or (is_missing and kind != "Option"):
            self._valued(found, name, {} if is_missing else {"default": value}, help_text, is_positional=True)  # type: ignore[dict-item]
        elif type_text == "bool":
            on, _, off = flag.partition("/")
            self._switch(found, on, off or "--no-" + on.lstrip("-"), value, help_text)
        else:
            own = {"required": ast.Constant(is_missing), **({} if is_missing else {"default": value})}
            self._valued(found, flag, own, help_text, is_positional=False)  # type: ignore[arg-type]

    def fire(self) -> ScriptOptions:
        """Return the parameters of the function that fire calls."""
        found = ScriptOptions()
        calls = [node for node in self._calls() if self._full_name(node.func) == "fire.Fire"]
        if not calls:
            return found
        found.library = "fire"
        target = calls[0].args[0] if calls[0].args else None
        functions = {function.name: function for function in self._functions()}
        function = functions.get(target.id) if isinstance(target, ast.Name) else None
        if function is None:
            found.left_out.append("what fire calls is not a function in this file")
            return found
        for name, _annotation, default in _parameters(function):
            own = {"required": ast.Constant(True)} if default is None else {"default": default}
            self._valued(found, f"--{name}", own, "", is_positional=False, separator="=")
        return found

    # hydra

    def hydra(self, config: Callable[[str], Mapping[str, Any] | None]) -> ScriptOptions:
        """Return the values of the configuration that ``@hydra.main`` names."""
        found = ScriptOptions()
        for function in self._functions():
            for decorator in function.decorator_list:
                if isinstance(decorator, ast.Call) and self._full_name(decorator.func) == "hydra.main":
                    found.library = "hydra"
                    self._hydra_config(_keywords(decorator), config, found)
                    return found
        return found

    def _hydra_config(
        self,
        keywords: Mapping[str, ast.expr],
        config: Callable[[str], Mapping[str, Any] | None],
        found: ScriptOptions,
    ) -> None:
        folder, name = self._text_of(keywords.get("config_path")), self._text_of(keywords.get("config_name"))
        name = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
        path = f"{folder}/{name}" if folder not in ("", "None") else name
        values = config(path)
        if values is None:
            found.left_out.append(f"the configuration {path} cannot be read")
            return
        for key, value in _flat(values):
            if key == "defaults" or key.startswith("hydra."):
                found.left_out.append(f"{key}: hydra puts it together")
            elif isinstance(value, str) and "${" in value:
                found.left_out.append(f"{key}: it refers to another value")
            else:
                found.add(key, value, lambda text, key=key: f"{key}={text}")  # type: ignore[misc]

    # The tree

    def _calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self._tree) if isinstance(node, ast.Call))

    def _functions(self) -> list[ast.FunctionDef]:
        return [node for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef)]

    def _method(self, call: ast.Call) -> str:
        return call.func.attr if isinstance(call.func, ast.Attribute) else ""

    def _full_name(self, node: ast.expr) -> str:
        """Return a name with what it is imported as: ``argparse.ArgumentParser``."""
        if isinstance(node, ast.Attribute):
            return f"{self._full_name(node.value)}.{node.attr}"
        return self._modules.get(node.id, node.id) if isinstance(node, ast.Name) else ""

    def _text_of(self, node: ast.expr | None) -> str:
        try:
            return str(self._value(node)) if node is not None else ""
        except _Computed:
            return ""

    def _value(self, node: ast.expr, depth: int = 8) -> Any:
        """Return what an expression of constants is.

        Raises:
            _Computed: only running it would tell.
        """
        if isinstance(node, ast.Constant):
            return node.value
        if depth and isinstance(node, ast.Name) and node.id in self._constants:
            return self._value(self._constants[node.id], depth - 1)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(item, depth) for item in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand, depth)
            if isinstance(value, (int, float)):
                return -value
        if depth and isinstance(node, ast.BinOp):
            left, right = self._value(node.left, depth - 1), self._value(node.right, depth - 1)
            if all(isinstance(side, (int, float)) for side in (left, right)):
                return _calculated(node.op, left, right)
        raise _Computed(ast.unparse(node))


def read_values(text: str, file: str) -> dict[str, Any] | None:
    """Return what a YAML file holds; None where it is not a map, or no YAML."""
    node = compose(text, file, Findings())
    value = _plain_value(node) if node is not None else None
    return value if isinstance(value, dict) else None


def _plain_value(node: Node) -> Any:
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, MapNode):
        return {name: _plain_value(entry.node) for name, entry in node.entries.items()}
    return [_plain_value(item) for item in node.nodes]


def _calculated(operation: ast.operator, left: float, right: float) -> Any:
    try:
        if isinstance(operation, ast.Pow) and abs(right) <= _POWER_MAX and abs(left) <= 1000:
            return left**right
        if type(operation) in _OPERATORS:
            return _OPERATORS[type(operation)](left, right)
    except ArithmeticError as error:
        raise _Computed(str(error)) from error
    raise _Computed("an operator")


def _keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _called_name(node: ast.expr) -> str:
    node = _called(node)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _parameters(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Yield name, annotation and default of a function's parameters."""
    positional = [*function.args.posonlyargs, *function.args.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(function.args.defaults))
    for argument, default in zip(positional, [*missing, *function.args.defaults], strict=True):
        if argument.arg not in ("self", "cls"):
            yield argument.arg, argument.annotation, default
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        yield argument.arg, argument.annotation, default


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _quoted(param: str, value: Any) -> str:
    """Return what stands for a parameter in a command; a text that the shell would read otherwise in quotes."""
    stands = f"${{params.{param}}}"
    return f"'{stands}'" if isinstance(value, str) and not (value and _PLAIN.fullmatch(value)) else stands


def _shown(value: Any) -> str:
    return "none" if value is None else shlex.quote(str(value))[:40]
