lib: rec {
  getExe =
    package:
    getExe' package (
      package.meta.mainProgram or (
        lib.warn (
          "getExe: Package ${lib.getName package} does not have the meta.mainProgram attribute."
        ) (lib.getName package)
      )
    );
  getExe' =
    package: program:
    assert lib.assertMsg (builtins.match ".*/.*" program == null)
      (
        "getExe': The second argument \"${program}\" is a nested path with a \"/\" character,"
        + " but it should just be the name of the executable instead."
      );
    "${lib.getBin package}/bin/${program}";
  setName = name: drv: drv // { inherit name; };
  addMetaAttrs = attrs: drv: drv // { meta = drv.meta or { } // attrs; };
  hiPrio = lib.id;
  lowPrio = lib.id;
}
