  // The float32 nearest to n * 2^unit, half to even; Inf from 2^128 on. `sticky`: the number is a little larger.
  function automatic logic [31:0] nearest_float32(input logic [63:0] n, input int unit, input logic sticky);
    int exponent, last, right, field;
    logic [63:0] down, rest, half, steps;
    logic up;
    begin
      exponent = log2(n) + unit;
      last = (exponent < -126) ? -149 : exponent - 23;
      right = last - unit;
      field = last + 149;
      down = (right > 0) ? n >> right : n << -right;
      rest = (right > 0) ? n - (down << right) : 64'd0;
      half = (right > 0) ? 64'd1 << (right - 1) : 64'd1;
      up = rest > half || (rest == half && (sticky || down[0]));
      steps = down + {63'd0, up};
      if (n == 64'd0 || right > 63) nearest_float32 = 32'd0;
      else if (exponent > 127) nearest_float32 = INFINITY;
      // A carry goes into the exponent field, at the top into Inf.
      else nearest_float32 = steps[31:0] + {field[8:0], 23'd0};
    end
  endfunction

  // The float32 product of two magnitudes, rounded half to even. Neither is NaN; Inf times anything is Inf.
  function automatic logic [31:0] product(input logic [31:0] a, input logic [31:0] b);
    product = (a >= INFINITY || b >= INFINITY) ? INFINITY
        : nearest_float32({32'd0, significand_of(a)} * {32'd0, significand_of(b)}, unit_of(a) + unit_of(b), 1'b0);
  endfunction
{% if scale == "float" %}
  // The float32 quotient of two magnitudes, rounded half to even. Neither is NaN; Inf over anything is Inf, and anything over 0 or Inf
  // means nothing.
  function automatic logic [31:0] quotient(input logic [31:0] a, input logic [31:0] b);
    int shift;
    logic [63:0] dividend, divisor, whole;
    begin
      shift = 62 - log2({32'd0, significand_of(a)}); // at least 39 bits remain
      dividend = {32'd0, significand_of(a)} << shift;
      divisor = (b == 32'd0) ? 64'd1 : {32'd0, significand_of(b)};
      whole = dividend / divisor;
      if (a >= INFINITY) quotient = INFINITY;
      else if (a == 32'd0) quotient = 32'd0;
      else quotient = nearest_float32(whole, unit_of(a) - shift - unit_of(b), whole * divisor != dividend);
    end
  endfunction
{% endif %}
