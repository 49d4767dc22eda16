"""A client that knows nothing of the protocol but what the server's reflection tells, spoken to as one speaks to grpcurl."""

import json
import re

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SCALARS = {getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower() for name in dir(FieldDescriptor) if name.startswith("TYPE_")}


def objects(text):
    """JSON values one behind the other."""
    decoder, found, text = json.JSONDecoder(), [], text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found


class Client:
    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = descriptor_pool.DescriptorPool(self.database)

    def close(self):
        self.channel.close()

    def __call__(self, *words, data=None, ok=True):
        try:
            answer, done = self.run(words, data), True
        except grpc.RpcError as error:
            answer, done = f"Code: {''.join(word.title() for word in error.code().name.split('_'))}\nMessage: {error.details()}", False
        assert ok is None or done == ok, (words, answer)
        return answer

    def run(self, words, data):
        match words:
            case ("list",):
                return "\n".join(self.database.get_services())
            case ("list", service):
                return "\n".join(method.full_name for method in self.pool.FindServiceByName(service).methods)
            case ("describe", message):
                return "\n".join(f"{kind(field)} {field.name} = {field.number};" for field in self.pool.FindMessageTypeByName(message).fields)
            case (method,):
                return self.call(method, data or "")

    def call(self, name, data):
        service, _, method = name.rpartition("/")
        described = self.pool.FindServiceByName(service).FindMethodByName(method)
        asked, answered = (message_factory.GetMessageClass(of) for of in (described.input_type, described.output_type))
        requests = [json_format.ParseDict(value, asked()) for value in objects(data)]
        path, how = f"/{name}", dict(request_serializer=asked.SerializeToString, response_deserializer=answered.FromString)
        if described.client_streaming:
            answers = self.channel.stream_stream(path, **how)(iter(requests), timeout=60)
        elif described.server_streaming:
            answers = self.channel.unary_stream(path, **how)(requests[0], timeout=60)
        else:
            answers = [self.channel.unary_unary(path, **how)(requests[0], timeout=60)]
        return "\n".join(json_format.MessageToJson(answer, preserving_proto_field_name=True) for answer in answers)


def kind(field):
    named = field.message_type or field.enum_type
    return re.sub(r"^.*\.", "", named.full_name) if named else SCALARS[field.type]
