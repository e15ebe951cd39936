module shop

go 1.18
