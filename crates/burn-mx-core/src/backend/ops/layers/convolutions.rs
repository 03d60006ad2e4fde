//! The methods of `ModuleOps` for convolutions: one text for each kind, in each number of dimensions.

/// Convolutions, in each number of dimensions, with the backward products that normal and transposed convolutions share.
macro_rules! convolutions {
    ($($options:ty: $forward:ident $weight_backward:ident $bias_backward:ident)*) => { $(
        fn $forward(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            bias: Option<FloatTensor<Self>>,
            options: $options,
        ) -> FloatTensor<Self> {
            hooks::layer::<B>(|| options.clone().into(), x, weight, bias, |x, weight, bias| {
                let geometry = Geometry::from(&options);
                let way = (geometry.direction, options.groups, Some(geometry));
                conv::forward::<B>(x, weight, bias, way, |x, weight, bias| {
                    B::$forward(x, weight, bias, options.clone())
                })
            })
        }

        fn $weight_backward(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            output_grad: FloatTensor<Self>,
            options: $options,
        ) -> FloatTensor<Self> {
            let geometry = Geometry::from(&options);
            conv::weight_backward::<B>(x, &weight, output_grad, geometry, |x, grad| {
                let weight = same_type::<B>(weight.inner.clone(), &grad);
                B::$weight_backward(x, weight, grad, options.clone())
            })
        }

        fn $bias_backward(
            x: FloatTensor<Self>,
            bias: FloatTensor<Self>,
            output_grad: FloatTensor<Self>,
        ) -> FloatTensor<Self> {
            conv::bias_backward::<B>(&x, &bias, output_grad, |grad| {
                let like = |tensor: &FloatTensor<Self>| same_type::<B>(tensor.inner.clone(), &grad);
                B::$bias_backward(like(&x), like(&bias), grad)
            })
        }
    )* };
}

/// Gradients of the inputs of convolutions.
macro_rules! x_gradients {
    ($($options:ty: $x_backward:ident)*) => { $(
        fn $x_backward(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            output_grad: FloatTensor<Self>,
            options: $options,
        ) -> FloatTensor<Self> {
            let way = Geometry::from(&options);
            conv::x_backward::<B>(Some(&x), weight, output_grad, way, |weight, grad| {
                let x = same_type::<B>(x.inner.clone(), &grad);
                B::$x_backward(x, weight, grad, options.clone())
            })
        }
    )* };
}

/// Gradients of the inputs of transposed convolutions.
macro_rules! transposed_x_gradients {
    ($($options:ty: $x_backward:ident)*) => { $(
        fn $x_backward(
            weight: FloatTensor<Self>,
            output_grad: FloatTensor<Self>,
            options: $options,
        ) -> FloatTensor<Self> {
            let way = Geometry::from(&options);
            conv::x_backward::<B>(None, weight, output_grad, way, |weight, grad| {
                B::$x_backward(weight, grad, options.clone())
            })
        }
    )* };
}

pub(super) use {convolutions, transposed_x_gradients, x_gradients};
