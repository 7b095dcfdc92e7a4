lib: rec {
  assertMsg = condition: message: condition || throw message;
  assertOneOf =
    name: value: allowed:
    assertMsg (builtins.elem value allowed)
      "${name} must be one of ${lib.generators.toPretty { } allowed}, but is: ${
        lib.generators.toPretty { } value
      }";
}
