# `eval`: a list of modules -> their config. `one`: an option's type and its definitions -> value.
{ lib }:
let
  inherit (lib) mkOption types;
  eval = modules: removeAttrs (lib.evalModules { inherit modules; }).config [ "_module" ];
in
{
  inherit eval;
  one =
    type: defs:
    let
      option.options.x = mkOption { inherit type; };
    in
    (eval ([ option ] ++ map (x: { config = { inherit x; }; }) defs)).x;
  item = types.submodule (
    { name, ... }:
    {
      options.name = mkOption {
        type = types.str;
        default = name;
      };
      options.size = mkOption {
        type = types.int;
        default = 1;
      };
    }
  );
}
