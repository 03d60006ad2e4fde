// Sums a dot product by C, for each length of up to 70: blocks of 32 MXFP8 elements whose codes and scales follow from their number.
module bench;
  import model_dpi_pkg::*;
  bit [32*1024-1:0] a, b;
  bit [32*32-1:0] a_scales, b_scales;
  integer i;

  initial begin
    for (i = 0; i < 1024; i = i + 1) begin
      a[32*i +: 32] = (i * 37 + 5) % 126;
      b[32*i +: 32] = (i * 91 + 130) % 255;
    end
    for (i = 0; i < 32; i = i + 1) begin
      a_scales[32*i +: 32] = 120 + i;
      b_scales[32*i +: 32] = 130 - i;
    end
    for (i = 0; i <= 70; i = i + 1) begin
      $display("%h", model_dpi_dot(a, a_scales, b, b_scales, i, 32'h3f800000));
    end
    $finish;
  end
endmodule
