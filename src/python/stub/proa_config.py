# SPDX-License-Identifier: Apache-2.0
"""A model's configuration in Python: what auto_complete_config fills, and the helpers that read it."""
import json


class ModelConfig:
    """The configuration that auto_complete_config is given: what it sets is checked against what is set already."""

    def __init__(self, model_config):
        self._config = json.loads(model_config) if isinstance(model_config, str) else dict(model_config)

    def as_dict(self):
        return self._config

    def _name(self):
        return self._config.get("name", "")

    def set_max_batch_size(self, max_batch_size):
        """The largest batch that the model takes; one that the configuration already has must not be larger."""
        configured = self._config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(f"configuration specified max_batch_size {configured}, but in auto-complete-config function "
                             f"for model '{self._name()}' specified max_batch_size {max_batch_size}")
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        """A dynamic batcher, unless the configuration has chosen a scheduler."""
        if not any(self._config.get(one) is not None
                   for one in ("dynamic_batching", "sequence_batching", "ensemble_scheduling")):
            self._config["dynamic_batching"] = {}

    def set_model_transaction_policy(self, transaction_policy_dict):
        """{"decoupled": bool}."""
        for key in transaction_policy_dict:
            if key != "decoupled":
                raise ValueError("model transaction policy property in auto-complete-config function for model "
                                 f"'{self._name()}' contains property other than 'decoupled'.")
        policy = self._config.setdefault("model_transaction_policy", {})
        decoupled = transaction_policy_dict.get("decoupled")
        if decoupled is None:
            return
        if policy.get("decoupled") and not decoupled:
            raise ValueError("trying to change decoupled property in auto-complete-config for model "
                             f"'{self._name()}', which is already set to 'True'.")
        policy["decoupled"] = bool(decoupled)

    def add_input(self, input):
        """{"name", "data_type", "dims"} and optionally "optional", "allow_ragged_batch", "reshape"."""
        self._add("input", input, ("name", "data_type", "dims", "optional", "allow_ragged_batch", "reshape"))

    def add_output(self, output):
        """{"name", "data_type", "dims"} and optionally "label_filename", "reshape"."""
        self._add("output", output, ("name", "data_type", "dims", "label_filename", "reshape"))

    def _add(self, side, tensor, allowed):
        where = f"in auto-complete-config function for model '{self._name()}'"
        if "name" not in tensor:
            raise ValueError(f"{side} {where} is missing 'name' property.")
        name = tensor["name"]
        for key in tensor:
            if key not in allowed:
                others = ", ".join(f"'{one}'" for one in allowed)
                raise ValueError(f"{side} '{name}' {where} contains property '{key}', which is other than {others}.")
        for key in ("data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{side} '{name}' {where} is missing '{key}' property.")
        tensors = self._config.setdefault(side, [])
        for known in tensors:
            if known.get("name") == name:
                self._complete(side, known, tensor)
                return
        tensors.append(dict(tensor))

    def _complete(self, side, known, tensor):
        """`known` of the configuration takes from `tensor` what it lacks, and must agree in the rest."""
        name, model = tensor["name"], self._name()
        if known.get("data_type", "TYPE_INVALID") not in ("TYPE_INVALID", 0, tensor["data_type"]):
            raise ValueError(f"unable to load model '{model}', configuration expects datatype {known['data_type']} for {side} "
                             f"'{name}', model provides {tensor['data_type']}")
        dims = [int(size) for size in known.get("dims") or []]
        if dims and dims != [int(size) for size in tensor["dims"]]:
            raise ValueError(f"model '{model}', tensor '{name}': the model expects dims {list(tensor['dims'])} but the model "
                             f"configuration specifies dims {dims}")
        for key, value in tensor.items():
            known[key] = value


def _by_name(tensors, name):
    for tensor in tensors or ():
        if tensor.get("name") == name:
            return tensor
    return None


def get_input_config_by_name(model_config, name):
    """The input of that name in a configuration as a dict; None if there is none."""
    return _by_name(model_config.get("input"), name)


def get_output_config_by_name(model_config, name):
    """The output of that name in a configuration as a dict; None if there is none."""
    return _by_name(model_config.get("output"), name)


def using_decoupled_model_transaction_policy(model_config):
    """Does this configuration (a dict) say that the model answers with any number of responses?"""
    return bool((model_config.get("model_transaction_policy") or {}).get("decoupled", False))
