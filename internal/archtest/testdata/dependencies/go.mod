module example.test/product

go 1.26.0

require example.test/alone v0.1.0

require (
	example.test/explained v1.2.3
	example.test/raised v1.1.0
	example.test/unexplained v2.0.0+incompatible
	example.test/deep v1.0.0 // indirect
)
