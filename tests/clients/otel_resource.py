"""Writes a process context (a message with a resource in its first field) with these attributes, NAME=VALUE each, by the
messages that OpenTelemetry publishes."""
import sys
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

resource = Resource()
resource.attributes.append(KeyValue(key="process.pid"))
resource.attributes[0].value.int_value = 7
for pair in sys.argv[1:]:
    name, value = pair.split("=", 1)
    attribute = resource.attributes.add(key=name)
    attribute.value.string_value = value
resource = resource.SerializeToString()
assert len(resource) < 1 << 14
length = bytes([len(resource)]) if len(resource) < 128 else bytes([len(resource) & 127 | 128, len(resource) >> 7])
sys.stdout.buffer.write(b"\x0a" + length + resource)
