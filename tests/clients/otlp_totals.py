"""Reads an OTLP export with the messages that OpenTelemetry publishes: otlp_totals.py FILE

Holds it to the rules of the protocol (entry 0 of a table stands for nothing, every index is one of its table), and
prints one JSON document: sums by sample type, and the live stacks, innermost function first."""

import json
import sys

from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
from opentelemetry.proto.profiles.v1development import profiles_pb2

content = open(sys.argv[1], "rb").read()
data = profiles_pb2.ProfilesData.FromString(content)
request = profiles_service_pb2.ExportProfilesServiceRequest.FromString(content)
assert request.dictionary == data.dictionary
tables = data.dictionary
text = tables.string_table

for name in ("mapping", "location", "function", "link", "attribute", "stack"):
    table = getattr(tables, f"{name}_table")
    assert table[0] == type(table[0])(), f"entry 0 of {name}_table is something"
assert text[0] == "" and len(set(text)) == len(text), "a string is there twice"


def check(index, table):
    assert 0 <= index < len(table), f"{index} is no entry"
    return table[index]


for mapping in tables.mapping_table:
    check(mapping.filename_strindex, text)
    for index in mapping.attribute_indices:
        check(index, tables.attribute_table)
for function in tables.function_table:
    check(function.name_strindex, text)
    check(function.filename_strindex, text)
for attribute in tables.attribute_table[1:]:
    assert check(attribute.key_strindex, text) and attribute.value.WhichOneof("value")
    check(attribute.unit_strindex, text)
for location in tables.location_table:
    check(location.mapping_index, tables.mapping_table)
    for line in location.lines:
        check(line.function_index, tables.function_table)
for stack in tables.stack_table:
    for index in stack.location_indices:
        assert index > 0
        check(index, tables.location_table)


def functions(stack):
    lines = [line for index in stack.location_indices for line in tables.location_table[index].lines]
    return [text[tables.function_table[line.function_index].name_strindex] for line in lines]


totals, live, ids = {}, [], set()
for resource in data.resource_profiles:
    attributes = {each.key: each.value for each in resource.resource.attributes}
    assert attributes["service.name"].string_value and attributes["process.pid"].int_value > 0
    for scope in resource.scope_profiles:
        for profile in scope.profiles:
            assert len(profile.profile_id) == 16 and profile.profile_id not in ids
            ids.add(profile.profile_id)
            assert profile.time_unix_nano > 0 and profile.duration_nano > 0
            name = text[profile.sample_type.type_strindex]
            for sample in profile.samples:
                assert len(sample.values) == 1 and not sample.timestamps_unix_nano
                keys = {text[check(i, tables.attribute_table).key_strindex] for i in sample.attribute_indices}
                assert {"thread.id", "thread.name", "heaptrace.block.size"} <= keys, keys
                stack = check(sample.stack_index, tables.stack_table)
                totals[name] = totals.get(name, 0) + sample.values[0]
                if name == "inuse_space":
                    live.append({"bytes": sample.values[0], "functions": functions(stack)})
first = data.resource_profiles[0].scope_profiles[0].profiles[0]
print(json.dumps({"totals": totals, "live": live, "first": text[first.sample_type.type_strindex]}))
