;; Bytes as 7-bit ASCII text and back; packing.py says the form. Included by the adapter's main
;; module and by the one that Packer runs, next to a memory. $m is the length of a lane, a seventh
;; of the bytes; from 16 on a vector of each lane is done at once, the last one overlapping the one
;; before it. Up to 64 bytes (SLACK) behind either buffer may be read or written.
  (func $pack (param $s i32) (param $n i32) (param $d i32) (result i32)
    (local $m i32) (local $j i32) (local $end i32) (local $k i32) (local $v v128) (local $t v128)
    (local.set $m (i32.div_u (i32.add (local.get $n) (i32.const 6)) (i32.const 7)))
    (if (i32.ge_u (local.get $m) (i32.const 16)) (then
      (local.set $end (i32.sub (local.get $m) (i32.const 16)))
      (loop $wide
        (local.set $t (v128.const i64x2 0 0))
        (local.set $v (v128.load align=1
          (i32.add (i32.add (local.get $s) (local.get $j)) (i32.mul (local.get $m) (i32.const 0)))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 0)))
          (v128.and (local.get $v) (v128.const i64x2 0x7f7f7f7f7f7f7f7f 0x7f7f7f7f7f7f7f7f)))
        (local.set $t (v128.or (local.get $t)
          (i8x16.shl (i8x16.shr_u (local.get $v) (i32.const 7)) (i32.const 0))))
        (local.set $v (v128.load align=1
          (i32.add (i32.add (local.get $s) (local.get $j)) (i32.mul (local.get $m) (i32.const 1)))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 1)))
          (v128.and (local.get $v) (v128.const i64x2 0x7f7f7f7f7f7f7f7f 0x7f7f7f7f7f7f7f7f)))
        (local.set $t (v128.or (local.get $t)
          (i8x16.shl (i8x16.shr_u (local.get $v) (i32.const 7)) (i32.const 1))))
        (local.set $v (v128.load align=1
          (i32.add (i32.add (local.get $s) (local.get $j)) (i32.mul (local.get $m) (i32.const 2)))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 2)))
          (v128.and (local.get $v) (v128.const i64x2 0x7f7f7f7f7f7f7f7f 0x7f7f7f7f7f7f7f7f)))
        (local.set $t (v128.or (local.get $t)
          (i8x16.shl (i8x16.shr_u (local.get $v) (i32.const 7)) (i32.const 2))))
        (local.set $v (v128.load align=1
          (i32.add (i32.add (local.get $s) (local.get $j)) (i32.mul (local.get $m) (i32.const 3)))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 3)))
          (v128.and (local.get $v) (v128.const i64x2 0x7f7f7f7f7f7f7f7f 0x7f7f7f7f7f7f7f7f)))
        (local.set $t (v128.or (local.get $t)
          (i8x16.shl (i8x16.shr_u (local.get $v) (i32.const 7)) (i32.const 3))))
        (local.set $v (v128.load align=1
          (i32.add (i32.add (local.get $s) (local.get $j)) (i32.mul (local.get $m) (i32.const 4)))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 4)))
          (v128.and (local.get $v) (v128.const i64x2 0x7f7f7f7f7f7f7f7f 0x7f7f7f7f7f7f7f7f)))
        (local.set $t (v128.or (local.get $t)
          (i8x16.shl (i8x16.shr_u (local.get $v) (i32.const 7)) (i32.const 4))))
        (local.set $v (v128.load align=1
          (i32.add (i32.add (local.get $s) (local.get $j)) (i32.mul (local.get $m) (i32.const 5)))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 5)))
          (v128.and (local.get $v) (v128.const i64x2 0x7f7f7f7f7f7f7f7f 0x7f7f7f7f7f7f7f7f)))
        (local.set $t (v128.or (local.get $t)
          (i8x16.shl (i8x16.shr_u (local.get $v) (i32.const 7)) (i32.const 5))))
        (local.set $v (v128.load align=1
          (i32.add (i32.add (local.get $s) (local.get $j)) (i32.mul (local.get $m) (i32.const 6)))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 6)))
          (v128.and (local.get $v) (v128.const i64x2 0x7f7f7f7f7f7f7f7f 0x7f7f7f7f7f7f7f7f)))
        (local.set $t (v128.or (local.get $t)
          (i8x16.shl (i8x16.shr_u (local.get $v) (i32.const 7)) (i32.const 6))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 7)))
          (local.get $t))
        (if (i32.lt_u (local.get $j) (local.get $end)) (then
          (local.set $j (i32.add (local.get $j) (i32.const 16)))
          (if (i32.gt_u (local.get $j) (local.get $end)) (then
            (local.set $j (local.get $end))))
          (br $wide))))
      (memory.copy (i32.add (local.get $d) (local.get $n))
        (i32.add (local.get $d) (i32.mul (local.get $m) (i32.const 7))) (local.get $m)))
    (else
      (memory.fill (i32.add (local.get $d) (local.get $n)) (i32.const 0) (local.get $m))
      (block $done (loop $byte
        (br_if $done (i32.ge_u (local.get $k) (local.get $n)))
        (i32.store8 (i32.add (local.get $d) (local.get $k))
          (i32.and (i32.load8_u (i32.add (local.get $s) (local.get $k))) (i32.const 127)))
        (local.set $j (i32.add (i32.add (local.get $d) (local.get $n))
          (i32.rem_u (local.get $k) (local.get $m))))
        (i32.store8 (local.get $j) (i32.or (i32.load8_u (local.get $j))
          (i32.shl
            (i32.shr_u (i32.load8_u (i32.add (local.get $s) (local.get $k))) (i32.const 7))
            (i32.div_u (local.get $k) (local.get $m)))))
        (local.set $k (i32.add (local.get $k) (i32.const 1)))
        (br $byte)))))
    (i32.add (local.get $n) (local.get $m)))

  (func $unpack (param $s i32) (param $n i32) (param $d i32)
    (local $m i32) (local $j i32) (local $end i32) (local $k i32) (local $t v128)
    (local.set $m (i32.div_u (i32.add (local.get $n) (i32.const 6)) (i32.const 7)))
    (if (i32.ge_u (local.get $m) (i32.const 16)) (then
      (local.set $end (i32.sub (local.get $m) (i32.const 16)))
      (loop $wide
        (local.set $t (v128.load align=1
          (i32.add (i32.add (local.get $s) (local.get $n)) (local.get $j))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 0)))
          (v128.or
            (v128.load align=1
              (i32.add (i32.add (local.get $s) (local.get $j))
                (i32.mul (local.get $m) (i32.const 0))))
            (v128.and (i8x16.shl (local.get $t) (i32.const 7))
              (v128.const i64x2 0x8080808080808080 0x8080808080808080))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 1)))
          (v128.or
            (v128.load align=1
              (i32.add (i32.add (local.get $s) (local.get $j))
                (i32.mul (local.get $m) (i32.const 1))))
            (v128.and (i8x16.shl (local.get $t) (i32.const 6))
              (v128.const i64x2 0x8080808080808080 0x8080808080808080))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 2)))
          (v128.or
            (v128.load align=1
              (i32.add (i32.add (local.get $s) (local.get $j))
                (i32.mul (local.get $m) (i32.const 2))))
            (v128.and (i8x16.shl (local.get $t) (i32.const 5))
              (v128.const i64x2 0x8080808080808080 0x8080808080808080))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 3)))
          (v128.or
            (v128.load align=1
              (i32.add (i32.add (local.get $s) (local.get $j))
                (i32.mul (local.get $m) (i32.const 3))))
            (v128.and (i8x16.shl (local.get $t) (i32.const 4))
              (v128.const i64x2 0x8080808080808080 0x8080808080808080))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 4)))
          (v128.or
            (v128.load align=1
              (i32.add (i32.add (local.get $s) (local.get $j))
                (i32.mul (local.get $m) (i32.const 4))))
            (v128.and (i8x16.shl (local.get $t) (i32.const 3))
              (v128.const i64x2 0x8080808080808080 0x8080808080808080))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 5)))
          (v128.or
            (v128.load align=1
              (i32.add (i32.add (local.get $s) (local.get $j))
                (i32.mul (local.get $m) (i32.const 5))))
            (v128.and (i8x16.shl (local.get $t) (i32.const 2))
              (v128.const i64x2 0x8080808080808080 0x8080808080808080))))
        (v128.store align=1
          (i32.add (i32.add (local.get $d) (local.get $j)) (i32.mul (local.get $m) (i32.const 6)))
          (v128.or
            (v128.load align=1
              (i32.add (i32.add (local.get $s) (local.get $j))
                (i32.mul (local.get $m) (i32.const 6))))
            (v128.and (i8x16.shl (local.get $t) (i32.const 1))
              (v128.const i64x2 0x8080808080808080 0x8080808080808080))))
        (if (i32.lt_u (local.get $j) (local.get $end)) (then
          (local.set $j (i32.add (local.get $j) (i32.const 16)))
          (if (i32.gt_u (local.get $j) (local.get $end)) (then
            (local.set $j (local.get $end))))
          (br $wide)))))
    (else
      (block $done (loop $byte
        (br_if $done (i32.ge_u (local.get $k) (local.get $n)))
        (i32.store8 (i32.add (local.get $d) (local.get $k)) (i32.or
          (i32.load8_u (i32.add (local.get $s) (local.get $k)))
          (i32.shl
            (i32.and (i32.const 1) (i32.shr_u
              (i32.load8_u (i32.add (i32.add (local.get $s) (local.get $n))
                (i32.rem_u (local.get $k) (local.get $m))))
              (i32.div_u (local.get $k) (local.get $m))))
            (i32.const 7))))
        (local.set $k (i32.add (local.get $k) (i32.const 1)))
        (br $byte))))))
