  localparam int BITS = {{ bits }};
  localparam int PRECISION = {{ precision }}; // bits of a significand, with the implicit one
  localparam int BIAS = {{ bias }};
  localparam logic [BITS-1:0] NAN_CODE = {{ bits }}'h{{ nan_code }};
  localparam logic [31:0] LARGEST_CODE = 32'h{{ max_code }}; // code of the largest number

  // Rounding modes.
  localparam logic [3:0] TOWARD_ZERO = 4'd0;
  localparam logic [3:0] TOWARD_POSITIVE = 4'd1;
  localparam logic [3:0] TOWARD_NEGATIVE = 4'd2;
  localparam logic [3:0] NEAREST_TIES_TO_AWAY = 4'd3;
  localparam logic [3:0] NEAREST_TIES_TO_EVEN = 4'd4; // a tie goes to the even code
  localparam logic [3:0] TO_ODD = 4'd5;               // an inexact number becomes the neighbour with the odd code
  localparam logic [3:0] STOCHASTIC_A = 4'd6;         // up if N bits of the fraction, cut off, plus the random number are 1 or more
  localparam logic [3:0] STOCHASTIC_B = 4'd7;         // as A, with one bit more, and the random number half a unit higher
  localparam logic [3:0] STOCHASTIC_C = 4'd8;         // as A, with the fraction rounded to N bits, half to even

  // Results for numbers that the format does not reach.
  localparam logic [1:0] SAT_FINITE = 2'd0;    // the extreme finite number, for infinities, too
  localparam logic [1:0] SAT_PROPAGATE = 2'd1; // the extreme finite number for finite ones; infinities stay, where the format has them
  localparam logic [1:0] SAT_NONE = 2'd2;      // an infinity or the extreme finite number, by the direction of rounding

  // floor(log2(n)) of n > 0; -1 for 0.
  function automatic int log2(input logic [31:0] n);
    int i;
    begin
      log2 = -1;
      for (i = 0; i < 32; i = i + 1) begin
        if (n[i]) log2 = i;
      end
    end
  endfunction
{% if fits_float32 %}
  // The float32 of a code, exactly: float32 has every number of this format. There is no -0.
  function automatic logic [31:0] decode(input logic [BITS-1:0] code);
    int unit, last, right, place;
    logic negative;
    logic [31:0] magnitude, field, significand, value;
    begin
      negative = {% if signed %}code[BITS-1]{% else %}1'b0{% endif %};
      magnitude = {{ "{" }}{{ 32 - bits }}'d0, code}{% if signed %} & 32'h{{ sign_less }}{% endif %};
      field = magnitude >> (PRECISION - 1);
      significand = magnitude - (((field > 32'd0) ? field - 32'd1 : 32'd0) << (PRECISION - 1));
      unit = 2 - PRECISION - BIAS + ((field > 32'd0) ? $signed(field) - 1 : 0);
      last = (log2(significand) + unit < -126) ? -149 : log2(significand) + unit - 23;
      right = unit - last;
      place = last + 149;
      // The leading bit counts as one in the exponent field.
      value = (significand << right) + {place[8:0], 23'd0};
      if (code == NAN_CODE) decode = NAN;
      else if (magnitude > LARGEST_CODE) decode = {negative, INFINITY[30:0]};
      else decode = (magnitude == 32'd0) ? 32'd0 : {negative, value[30:0]};
    end
  endfunction
{% endif %}
  // The code of an extreme finite number.
  function automatic logic [BITS-1:0] extreme(input logic negative);
    extreme = {% if signed %}LARGEST_CODE[BITS-1:0] | {negative, {{ bits - 1 }}'d0}{% else %}negative ? {{ bits }}'d0 : LARGEST_CODE[BITS-1:0]{% endif %};
  endfunction

  // The code of an infinity of a saturation mode that keeps infinities.{% if not extended %} This format has none.{% endif %}
  function automatic logic [BITS-1:0] infinite(input logic negative{% if not signed %}, input logic [1:0] saturation{% endif %});
{% if signed %}    infinite = {% if extended %}{{ bits }}'h{{ infinity }} | {negative, {{ bits - 1 }}'d0}{% else %}extreme(negative){% endif %};
{% else %}    infinite = negative ? ((saturation == SAT_NONE) ? NAN_CODE : {{ bits }}'d0) : {% if extended %}{{ bits }}'h{{ infinity }}{% else %}extreme(1'b0){% endif %};
{% endif %}  endfunction

  // Whether a magnitude between two neighbours becomes the larger one. The fraction between them is fraction / 2^64; `has_rest`: a
  // little more.
  function automatic logic is_up(input logic [63:0] fraction, input logic has_rest, input logic is_odd, input logic negative,
                                 input logic [3:0] rounding, input int random_bits, input logic [31:0] random);
    logic [63:0] bits, twice, one, below;
    begin
      one = 64'd1 << random_bits;
      bits = fraction >> (64 - random_bits);
      twice = fraction >> (63 - random_bits);
      below = fraction << (random_bits + 1);
      case (rounding)
        TOWARD_POSITIVE: is_up = !negative;
        TOWARD_NEGATIVE: is_up = negative;
        NEAREST_TIES_TO_AWAY: is_up = fraction[63];
        NEAREST_TIES_TO_EVEN: is_up = fraction[63] && (is_odd || fraction[62:0] != 63'd0 || has_rest);
        TO_ODD: is_up = !is_odd;
        STOCHASTIC_A: is_up = bits + {32'd0, random} >= one;
        STOCHASTIC_B: is_up = twice + {31'd0, random, 1'b1} >= (one << 1);
        STOCHASTIC_C: begin
          is_up = bits + {63'd0, twice[0] && (bits[0] || below != 64'd0 || has_rest)} + {32'd0, random} >= one;
        end
        default: is_up = 1'b0; // TOWARD_ZERO
      endcase
    end
  endfunction

  // The code of a float32: rounded, saturated, encoded. NaN has the code of NaN, and +-0 the code 0. Subnormal numbers count as they are.
  // A stochastic mode takes a random number below 2^random_bits, with 1 to 31 bits; for the other modes both are 0.
  function automatic logic [BITS-1:0] project(input logic [31:0] x, input logic [3:0] rounding, input logic [1:0] saturation,
                                              input logic [4:0] random_bits, input logic [30:0] random);
    int exponent, own, unit, drop, field;
    logic [31:0] significand, code;
    logic [63:0] fraction;
    logic negative, is_inexact, stays, up;
    begin
      negative = x[31];
      significand = {8'd0, x[30:23] != 8'd0, x[22:0]};
      exponent = (x[30:23] == 8'd0) ? -149 : $signed({24'd0, x[30:23]}) - 150;
      own = log2(significand) + exponent;
      unit = ((own < 1 - BIAS) ? 1 - BIAS : own) - PRECISION + 1;
      drop = unit - exponent;
      field = unit + BIAS + PRECISION - 2;
      // The leading bit counts as one in the exponent field; a carry runs into this field.
      code = (field << (PRECISION - 1)) + ((drop < 0) ? significand << -drop : (drop > 31) ? 32'd0 : significand >> drop);
      fraction = (drop <= 0) ? 64'd0 : (drop > 64) ? {32'd0, significand} >> (drop - 64) : {32'd0, significand} << (64 - drop);
      is_inexact = drop > 0 && (drop > 64 || fraction != 64'd0);
      up = is_inexact && is_up(fraction, drop > 64, code[0], negative, rounding, {27'd0, random_bits}, {1'b0, random});
      code = code + {31'd0, up};
      stays = rounding == TOWARD_ZERO || (rounding == TOWARD_NEGATIVE && !negative) || (rounding == TOWARD_POSITIVE && negative){% if extended and not signed %}
          || (rounding == TO_ODD && !negative){% endif %};
      if (x[30:0] > INFINITY[30:0]) project = NAN_CODE;
      else if (x[30:0] == INFINITY[30:0]) project = (saturation == SAT_FINITE) ? extreme(negative) : infinite(negative{% if not signed %}, saturation{% endif %});
      else if (significand == 32'd0) project = {{ bits }}'d0;
      else if (code > {% if signed %}LARGEST_CODE{% else %}(negative ? 32'd0 : LARGEST_CODE){% endif %}) begin
        project = (saturation != SAT_NONE || stays) ? extreme(negative) : infinite(negative{% if not signed %}, saturation{% endif %});
      end
      else project = code[BITS-1:0]{% if signed %} | {negative && code != 32'd0, {{ bits - 1 }}'d0}{% endif %};
    end
  endfunction
