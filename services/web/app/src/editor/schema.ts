// What the JSON schema of a file says of one place in it.

export interface Schema {
  $ref?: string;
  allOf?: Schema[];
  anyOf?: Schema[];
  not?: Schema;
  type?: string | string[];
  enum?: unknown[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  required?: string[];
  description?: string;
  deprecated?: boolean;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  definitions?: Record<string, Schema>;
}

export interface Shape {
  keys?: Record<string, Schema>; // of a mapping whose keys are known
  values?: Schema; // of a mapping with any keys
  items?: Schema;
  choices?: string[];
  type: string; // of JSON; "" where any will do
  required: string[];
  refused: unknown[]; // values of those choices that are not taken
  bounds: Pick<Schema, "pattern" | "minimum" | "maximum" | "minLength" | "maxLength" | "maxItems">;
  description: string;
  isDeprecated: boolean;
}

const BOUNDS = ["pattern", "minimum", "maximum", "minLength", "maxLength", "maxItems"] as const;
export const ITEM = -1; // in a path: any item of a list

export function shapeOf(schema: Schema, root: Schema): Shape {
  const shape: Shape = { type: "", required: [], refused: [], bounds: {}, description: "", isDeprecated: false };
  learn(shape, schema, root);
  shape.choices = shape.choices?.filter((choice) => !shape.refused.includes(choice));
  return shape;
}

function learn(shape: Shape, schema: Schema, root: Schema): void {
  if (schema.$ref) learn(shape, target(schema.$ref, root), root);
  for (const part of schema.allOf ?? []) learn(shape, part, root);
  if (schema.anyOf) learnChoice(shape, schema.anyOf, root);
  if (schema.enum) shape.choices = schema.enum.map(String);
  if (schema.not?.enum) shape.refused.push(...schema.not.enum);
  if (typeof schema.type === "string") shape.type = schema.type;
  else if (schema.type) shape.type = schema.type[0] ?? "";
  if (schema.properties) shape.keys = schema.properties;
  if (typeof schema.additionalProperties === "object") shape.values = schema.additionalProperties;
  if (schema.items) shape.items = schema.items;
  if (schema.description) shape.description = schema.description;
  if (schema.deprecated) shape.isDeprecated = true;
  for (const bound of BOUNDS) if (schema[bound] !== undefined) Object.assign(shape.bounds, { [bound]: schema[bound] });
}

// Of the ways to write a value that which people use: a name and not its number, a mapping and not nothing.
function learnChoice(shape: Shape, ways: Schema[], root: Schema): void {
  const required = ways.find((way) => way.required)?.required;
  if (required) {
    shape.required.push(...required);
    return;
  }
  const best = ways.find((way) => way.enum) ?? ways.find((way) => way.$ref || way.properties) ?? ways[0];
  if (best) learn(shape, best, root);
}

function target(reference: string, root: Schema): Schema {
  return root.definitions?.[reference.replace("#/definitions/", "")] ?? {};
}

// Keys are taken in any mix of cases and underscores.
export function squashed(key: string): string {
  return key.replaceAll("_", "").toLowerCase();
}

export function below(shape: Shape, step: string | typeof ITEM, root: Schema): Shape | null {
  const schema = step === ITEM ? shape.items : (shape.keys?.[squashed(String(step))] ?? shape.values);
  return schema ? shapeOf(schema, root) : null;
}

// Null where the schema knows no such place.
export function shapeAt(path: (string | typeof ITEM)[], root: Schema): Shape | null {
  let shape: Shape | null = shapeOf(root, root);
  for (const step of path) shape = shape && below(shape, step, root);
  return shape;
}

export function nameOf(shape: Shape): string {
  if (shape.choices) return "one of several";
  return { object: "mapping", array: "list", string: "text", boolean: "true or false", integer: "whole number" }[shape.type] ?? shape.type;
}
