  // A code from its magnitude and its sign.{% if fixed %} Two's complement.{% elif specials == "fnuz" %} There is no -0: its code is NaN's.{% else %} Zero keeps its sign.{% endif %}
  function automatic logic [ELEMENT_BITS-1:0] signed_code(input logic [31:0] magnitude, input logic negative);
    logic [31:0] code;
    begin
{% if fixed %}      code = negative ? -magnitude : magnitude;
{% elif specials == "fnuz" %}      code = (negative && magnitude != 32'd0) ? magnitude | 32'h{{ sign }} : magnitude;
{% else %}      code = negative ? magnitude | 32'h{{ sign }} : magnitude;
{% endif %}      signed_code = code[ELEMENT_BITS-1:0];
    end
  endfunction

  // The float32 of an element's code, times 2^scale.{% if specials == "ieee" %} Codes with all bits of the exponent field are +-Inf, or NaN where mantissa bits
  // are set.{% elif specials == "nan" %} The largest magnitude code is NaN, with either sign.{% elif specials == "fnuz" %} The code of the sign alone is NaN.{% else %} Every code is a number.{% endif %}
  function automatic logic [31:0] scaled_element(input logic [ELEMENT_BITS-1:0] code, input int scale);
    logic negative;
    logic [31:0] wide, magnitude;
    begin
      negative = code[ELEMENT_BITS-1];
      wide = {{ "{" }}{% if bits < 32 %}{{ 32 - bits }}'d0, {% endif %}code};
{% if fixed %}      magnitude = (negative ? -wide : wide) & 32'h{{ mask }};
      scaled_element = float32(magnitude, EMIN - MANTISSA_BITS + scale) | {negative, 31'd0};
{% else %}      magnitude = wide & 32'h{{ sign_less }};
      scaled_element = magnitude_of(magnitude, scale, MANTISSA_BITS, EMIN) | {negative, 31'd0};
{% endif %}{% if specials == "ieee" %}      if (magnitude > LARGEST_CODE) begin
        scaled_element = (magnitude == LARGEST_CODE + 32'd1) ? INFINITY | {negative, 31'd0} : NAN;
      end
{% elif specials == "nan" %}      if (magnitude > LARGEST_CODE) scaled_element = NAN;
{% elif specials == "fnuz" %}      if (negative && magnitude == 32'd0) scaled_element = NAN;
{% endif %}    end
  endfunction

  // The float32 of an element's code, without any scale: exact.
  function automatic logic [31:0] decode_element(input logic [ELEMENT_BITS-1:0] code);
    decode_element = scaled_element(code, 0);
  endfunction

  // The code of a float32, without any scale. Numbers beyond the largest one, and +-Inf, saturate.
  // {% if nan_code %}NaN has the code NAN_CODE.{% else %}No code is NaN: NaN gives 0.{% endif %} {% if fixed or specials == "fnuz" %}-0, and what is rounded to it, give 0.{% else %}Zeros, and what is rounded to zero, keep their sign.{% endif %}
  function automatic logic [ELEMENT_BITS-1:0] encode_element(input logic [31:0] x, input logic [1:0] rounding,
                                                             input logic [31:0] draw);
    logic [31:0] magnitude, code;
    begin
      magnitude = {1'b0, x[30:0]};
      code = magnitude_code(magnitude, 0, MANTISSA_BITS, EMIN, rounding, draw);
      if (magnitude > INFINITY) encode_element = {% if nan_code %}NAN_CODE{% else %}{{ bits }}'d0{% endif %};
      else if (magnitude == INFINITY || code > LARGEST_CODE) encode_element = signed_code(LARGEST_CODE, x[31]);
      else encode_element = signed_code(code, x[31]);
    end
  endfunction
