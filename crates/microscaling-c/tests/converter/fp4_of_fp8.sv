// One element. `exponent` is the exponent of the block's largest magnitude, plus 9.
module fp4_of_fp8 (
    input  logic [7:0] x,
    input  logic [4:0] exponent,
    input  logic is_nan,
    output logic [3:0] code
);
  // x / scale = significand * 2^(own - exponent - 1), own being the exponent of x plus 9 if x is normal. In units of 2^-15.
  logic [3:0] significand;
  logic [4:0] own, left;
  logic [20:0] unit;
  always @* begin
    significand = {x[6:3] != 4'd0, x[2:0]};
    own = (x[6:3] != 4'd0) ? {1'b0, x[6:3]} + 5'd2 : 5'd3;
    left = own + 5'd14 - exponent;
    unit = {17'd0, significand} << left;
  end

  // The thresholds are the midpoints of the numbers 0, 0.5, 1, 1.5, 2, 3, 4, 6. Every other one belongs to the number below.
  logic [2:0] magnitude;
  always @* begin
`ifdef FAULT_TIES_AWAY
    magnitude = {2'd0, unit >= 21'd8192} + {2'd0, unit >= 21'd24576} + {2'd0, unit >= 21'd40960}
        + {2'd0, unit >= 21'd57344} + {2'd0, unit >= 21'd81920} + {2'd0, unit >= 21'd114688} + {2'd0, unit >= 21'd163840};
`else
    magnitude = {2'd0, unit > 21'd8192} + {2'd0, unit >= 21'd24576} + {2'd0, unit > 21'd40960}
        + {2'd0, unit >= 21'd57344} + {2'd0, unit > 21'd81920} + {2'd0, unit >= 21'd114688} + {2'd0, unit > 21'd163840};
`endif
`ifdef FAULT_NEGATIVE_ZERO
    code = is_nan ? 4'd0 : {x[7] && magnitude != 3'd0, magnitude};
`else
    code = is_nan ? 4'd0 : {x[7], magnitude};
`endif
  end
endmodule
