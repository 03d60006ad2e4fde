// Reads the vectors of odd.hex, and writes what the converter makes of each block. The fields lie as odd.layout.json says.
module bench;
  localparam int CASES = 735;
  logic [1131:0] cases[0:CASES-1];
  logic [511:0] x, values;
  logic [6:0] scale;
  logic [95:0] codes;

  // The format has a rounding of its own, for any mode here.
  odd_quantize_block quantize (
      .x(x), .rounding(odd_pkg::OWN_ROUNDING), .draws(512'd0), .scale(scale), .codes(codes));
  odd_dequantize_block dequantize (.scale(scale), .codes(codes), .values(values));

  initial begin
    $readmemh("odd.hex", cases);
    for (int i = 0; i < CASES; i++) begin
      x = cases[i][1126:615];
      #1 $display("%h", {scale, codes, values});
    end
    $finish;
  end
endmodule
