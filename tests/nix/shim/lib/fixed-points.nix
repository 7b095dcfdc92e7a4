lib: rec {
  fix =
    f:
    let
      x = f x;
    in
    x;
  extends =
    overlay: f: final:
    let
      prev = f final;
    in
    prev // overlay final prev;
  composeExtensions =
    f: g: final: prev:
    let
      first = f final prev;
    in
    first // g final (prev // first);
  composeManyExtensions = lib.foldr composeExtensions (_: _: { });
}
