lib: rec {
  inherit (builtins)
    all
    any
    concatLists
    concatMap
    elem
    elemAt
    filter
    foldl'
    genList
    groupBy
    head
    isList
    length
    map
    partition
    sort
    tail
    ;

  singleton = x: [ x ];
  optional = condition: x: if condition then [ x ] else [ ];
  optionals = condition: xs: if condition then xs else [ ];
  toList = x: if isList x then x else [ x ];
  range = first: last: if first > last then [ ] else genList (n: first + n) (last - first + 1);
  replicate = n: x: genList (_: x) n;

  foldr =
    op: nul: xs:
    let
      size = length xs;
      from = at: if at == size then nul else op (elemAt xs at) (from (at + 1));
    in
    from 0;
  fold = foldr;
  foldl = foldl';

  imap0 = f: xs: genList (n: f n (elemAt xs n)) (length xs);
  imap1 = f: xs: genList (n: f (n + 1) (elemAt xs n)) (length xs);
  flatten = x: if isList x then concatMap flatten x else [ x ];
  remove = e: filter (x: x != e);
  count = pred: xs: length (filter pred xs);
  reverseList =
    xs:
    let
      size = length xs;
    in
    genList (n: elemAt xs (size - n - 1)) size;

  findFirst =
    pred: fallback: xs:
    let
      found = filter pred xs;
    in
    if found == [ ] then fallback else head found;

  take = n: sublist 0 n;
  drop = n: xs: sublist n (length xs) xs;
  sublist =
    start: count: xs:
    let
      left = lib.max 0 (length xs - start);
    in
    genList (n: elemAt xs (start + n)) (lib.min count left);
  last = xs: elemAt xs (length xs - 1);
  init = xs: take (length xs - 1) xs;
  hasPrefix = prefix: xs: take (length prefix) xs == prefix;

  unique = foldl' (seen: x: if elem x seen then seen else seen ++ [ x ]) [ ];
  allUnique = xs: length (unique xs) == length xs;
  intersectLists = e: filter (x: elem x e);
  subtractLists = e: filter (x: !elem x e);
  mutuallyExclusive = a: b: !any (x: elem x a) b;

  zipListsWith =
    f: a: b:
    genList (n: f (elemAt a n) (elemAt b n)) (lib.min (length a) (length b));
  zipLists = zipListsWith (fst: snd: { inherit fst snd; });

  sortOn = f: sort (a: b: f a < f b);
  groupBy' =
    op: nul: pred: xs:
    builtins.mapAttrs (_: foldl' op nul) (groupBy pred xs);
  crossLists = f: foldl' (fs: args: concatMap (g: map g args) fs) [ f ];
}
