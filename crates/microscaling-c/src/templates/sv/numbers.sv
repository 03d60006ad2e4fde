  // floor(log2(n)) of n > 0; -1 for 0.
  function automatic int log2(input logic [63:0] n);
    int i;
    begin
      log2 = -1;
      for (i = 0; i < 64; i = i + 1) begin
        if (n[i]) log2 = i;
      end
    end
  endfunction

  // A finite float32 magnitude is significand * 2^unit. A subnormal one has the unit of the smallest normal numbers.
  function automatic logic [31:0] significand_of(input logic [31:0] magnitude);
    significand_of = {8'd0, magnitude[30:23] != 8'd0, magnitude[22:0]};
  endfunction

  function automatic int unit_of(input logic [31:0] magnitude);
    unit_of = (magnitude[30:23] == 8'd0) ? -149 : $signed({24'd0, magnitude[30:23]}) - 150;
  endfunction

  // The float32 of n * 2^unit, cut off toward zero where float32 is too coarse; Inf from 2^128 on.
  function automatic logic [31:0] float32(input logic [31:0] n, input int unit);
    int exponent, last, right, field;
    begin
      exponent = log2({32'd0, n}) + unit;
      last = (exponent < -126) ? -149 : exponent - 23;
      right = last - unit;
      field = last + 149;
      if (n == 32'd0 || right > 31) float32 = 32'd0;
      else if (exponent > 127) float32 = INFINITY;
      // The leading bit counts as one in the exponent field.
      else float32 = ((right >= 0) ? n >> right : n << -right) + {field[8:0], 23'd0};
    end
  endfunction

  // Whether a magnitude becomes the upper one of its neighbours. The code of the lower one is odd or even; the distance to it is `rest`,
  // and to the middle between both `half`.
  function automatic logic is_up(input logic is_odd, input logic [31:0] rest, input logic [31:0] half, input logic negative,
                                 input logic [3:0] rounding);
    begin
      case (rounding)
        NEAREST_AWAY: is_up = rest >= half;
        NEAREST_EVEN: is_up = rest > half || (rest == half && is_odd);
        TIES_TO_ZERO: is_up = rest > half;
        TIES_TO_ODD: is_up = rest > half || (rest == half && !is_odd);
        TIES_UP: is_up = rest > half || (rest == half && !negative);
        TIES_DOWN: is_up = rest > half || (rest == half && negative);
        AWAY_FROM_ZERO: is_up = rest != 32'd0;
        UPWARD: is_up = rest != 32'd0 && !negative;
        DOWNWARD: is_up = rest != 32'd0 && negative;
        TO_ODD: is_up = rest != 32'd0 && !is_odd;
        default: is_up = 1'b0; // TOWARD_ZERO
      endcase
    end
  endfunction

  // significand / 2^drop, rounded to a whole number; `base` is added. `base` is even or odd as the code that the whole number belongs
  // to: a tie goes to the even code. With `drop` below 1 nothing is rounded. The significand has at most 24 bits.
  function automatic logic [31:0] round_code(input logic [31:0] significand, input int drop, input logic [31:0] base,
                                             input logic negative, input logic [3:0] rounding, input logic [31:0] draw);
    int bits, excess{% if fraction_rounding %}, finer, left{% endif %};
    logic [31:0] down, rest, half, code, fine, random;
    begin
      bits = (drop > 25) ? 25 : drop; // a significand is less than a half of 2^25
      down = significand >> bits;
      rest = significand - (down << bits);
      half = 32'd1 << (bits - 1);
      code = base + down;
{% if fraction_rounding %}      // Of stochastic rounding: the fraction is rounded to N bits first.
      finer = (drop - RANDOM_BITS > 25) ? 25 : drop - RANDOM_BITS;
      left = (finer > 0) ? RANDOM_BITS : drop;
      fine = significand >> ((finer > 0) ? finer : 0);
      if (finer > 0) begin
        fine = fine + {31'd0, is_up(fine[0], significand - (fine << finer), 32'd1 << (finer - 1), 1'b0, {{ fraction_rounding }})};
      end
      bits = (left > 31) ? 31 : left;
      excess = left - bits;
{% else %}      fine = significand;
      bits = (drop > 31) ? 31 : drop;
      excess = drop - bits;
{% endif %}      random = {1'b0, draw[31:1]{% if random_bits != 31 %} & 31'h{{ random_mask_half }}{% endif %}} >> (31 - bits);
      if (drop <= 0) round_code = base + (significand << -drop);
      // floor(x + u), u = draw / 2^32; the fraction of x counts with at most {{ random_bits }} bits, and so does u.
      else if (rounding == STOCHASTIC) round_code = base + ((((excess > 31) ? 32'd0 : fine >> excess) + random) >> bits);
      else round_code = code + {31'd0, is_up(code[0], rest, half, negative, rounding)};
    end
  endfunction

  // The code, without a sign, of +-magnitude / 2^scale in a float format with these mantissa bits, whose smallest normal number is
  // 2^emin. The exponent field has no end here: the caller saturates. The magnitude is a float32 pattern; Inf counts as 2^128.
  function automatic logic [31:0] magnitude_code(input logic [31:0] magnitude, input logic negative, input int scale,
                                                 input int mantissa_bits, input int emin, input logic [3:0] rounding,
                                                 input logic [31:0] draw);
    int own, unit, exponent;
    logic [31:0] significand;
    begin
      significand = significand_of(magnitude);
      unit = unit_of(magnitude) - scale;
      own = log2({32'd0, significand}) + unit;
      exponent = (own < emin) ? emin : own; // subnormal
      // The leading bit counts as one in the exponent field; a subnormal number has the field 1, less this bit.
      magnitude_code = (significand == 32'd0) ? 32'd0
          : round_code(significand, exponent - mantissa_bits - unit, (exponent - emin) << mantissa_bits, negative, rounding, draw);
    end
  endfunction

  // The inverse: the float32 of a code without a sign, times 2^scale, cut off toward zero where float32 is too coarse.
  function automatic logic [31:0] magnitude_of(input logic [31:0] code, input int scale, input int mantissa_bits, input int emin);
    logic [31:0] field, implicit;
    begin
      field = code >> mantissa_bits;
      implicit = (field > 32'd0) ? field - 32'd1 : 32'd0;
      magnitude_of = float32(code - (implicit << mantissa_bits), emin - mantissa_bits + $signed(implicit) + scale);
    end
  endfunction
