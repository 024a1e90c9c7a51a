"""Compares the operations of SQS in the document, the first argument, with the model of them that botocore has: the operations,
the members of what they take and answer, their types, and which are required.
"""

import json
import sys

import botocore.loaders
import botocore.model

PATH = "/#X-Amz-Target=AmazonSQS."
KINDS = {"string": "string", "integer": "integer", "long": "integer", "boolean": "boolean", "list": "array",
         "map": "object", "structure": "object", "blob": "string"}
# AWS has them and uses them for nothing.
UNUSED = {"StringListValues", "BinaryListValues"}


def documented(schemas, schema):
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
    return schema


def compare(where, schemas, schema, shape):
    """The differences of a schema from a shape."""
    schema = documented(schemas, schema)
    if schema.get("type") != KINDS[shape.type_name]:
        yield f"{where}: {schema.get('type')} is not {shape.type_name}"
    elif shape.type_name == "structure":
        members = {name: member for name, member in shape.members.items() if name not in UNUSED}
        properties = schema.get("properties", {})
        if set(members) != set(properties):
            yield f"{where}: {sorted(set(members) ^ set(properties))}"
        for name in set(shape.required_members) - set(schema.get("required", [])):
            yield f"{where}: {name} is required"
        for name in set(members) & set(properties):
            yield from compare(f"{where}.{name}", schemas, properties[name], members[name])
    elif shape.type_name == "list":
        yield from compare(f"{where}[]", schemas, schema["items"], shape.member)
    elif shape.type_name == "map":
        yield from compare(f"{where}{{}}", schemas, schema["additionalProperties"], shape.value)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    schemas = document["components"]["schemas"]
    model = botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model("sqs", "service-2"))
    paths = {path.removeprefix(PATH): item["post"] for path, item in document["paths"].items() if path.startswith(PATH)}
    differences = [f"operation {name}" for name in set(paths) ^ set(model.operation_names)]
    for name in sorted(set(paths) & set(model.operation_names)):
        operation = model.operation_model(name)
        body = paths[name]["requestBody"]["content"]["application/json"]["schema"]
        differences += compare(f"{name}Request", schemas, body, operation.input_shape)
        answer = paths[name]["responses"]["200"].get("content")
        if (answer is None) != (operation.output_shape is None):
            differences.append(f"{name}: answer")
        elif answer is not None:
            body = answer["application/json"]["schema"]
            differences += compare(f"{name}Result", schemas, body, operation.output_shape)
    assert len(paths) > 20 and not differences, "\n".join(differences)


main()
